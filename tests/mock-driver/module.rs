//! Modules from PTX text, their functions, and what these take of the device.

use crate::device::put;
use crate::ptx;
use crate::state::{CURRENT, Function, Handle, Link, Module, Outcome, State, When, call};
use crate::stream::LaunchConfig;
use std::ffi::{CStr, CString, c_char, c_uint, c_void};
use std::sync::Arc;

/// CU_JIT_GENERATE_LINE_INFO (cuda.h).
const LINE_INFO: i32 = 13;

/// Dynamic shared memory that a launch may have without asking.
const PLAIN_SHARED: u32 = 48 << 10;

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    count: c_uint,
    options: *mut i32,
    values: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller's image is a text that ends with a zero, and there are `count` options with values.
    let (text, options, values) = unsafe {
        let text = CStr::from_ptr(image.cast()).to_string_lossy().into_owned();
        let count = count as usize;
        (text, std::slice::from_raw_parts(options, count), std::slice::from_raw_parts_mut(values, count))
    };
    let mut log = crate::state::state().settings.log.clone();
    let asks = options.iter().zip(values.iter()).any(|(option, value)| *option == LINE_INFO && *value as usize == 1);
    let lines = if asks { " with line info" } else { "" };
    let code = call("cuModuleLoadDataEx", When::Current, format!("{} bytes{lines}", text.len()), |state| {
        let handle = load(state, &text, &mut log)?;
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(module, handle as Handle) }
    });
    // Log buffers are options 3 (notes) and 5 (errors), each followed by its size; option 2 is a float, the time.
    for i in 0..options.len() {
        let text = match (options[i], code) {
            (3, 0) => "ptxas info    : 0 bytes gmem",
            (5, 1..) => &log,
            (2, _) => {
                values[i] = std::ptr::without_provenance_mut(1.5f32.to_bits() as usize);
                continue;
            }
            _ => continue,
        };
        // SAFETY: the buffer is as large as its size says.
        unsafe { say(text, buffer(options, values, options[i])) };
    }
    code
}

/// The buffer that an option names, with the size that the option after it gives.
fn buffer(options: &[i32], values: &[*mut c_void], option: i32) -> Option<(usize, usize)> {
    let value = |option: i32| Some(values[options.iter().position(|o| *o == option)?] as usize);
    Some((value(option)?, value(option + 1).unwrap_or(0)))
}

/// Writes a text with a zero at its end, as much as there is room for.
///
/// # Safety
/// The address must have as many bytes.
unsafe fn say(text: &str, buffer: Option<(usize, usize)>) {
    let Some((address, room)) = buffer.filter(|(_, room)| *room > 0) else { return };
    let bytes = text.len().min(room - 1);
    let to = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the caller vouches for the room.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to, bytes);
        to.add(bytes).write(0);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> i32 {
    // SAFETY: the caller's image is a text that ends with a zero.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
    call("cuModuleLoadData", When::Current, format!("{} bytes", text.len()), |state| {
        let handle = load(state, &text, &mut String::new())?;
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(module, handle as Handle) }
    })
}

/// What machine code begins with. Here PTX follows, which stands for what it would be assembled to.
const ELF: &str = "\x7fELF";

fn load(state: &mut State, image: &str, log: &mut String) -> Outcome<usize> {
    let code = image.strip_prefix(ELF);
    let text = code.unwrap_or(image);
    let module = ptx::read(text).ok_or(218)?;
    let newest = state.settings.ptx();
    if module.version > newest {
        let (major, minor) = (module.version / 10, module.version % 10);
        *log = format!(
            "ptxas application ptx input, line 1; fatal   : Unsupported .version {major}.{minor}; \
             current version is '{}.{}'",
            newest / 10,
            newest % 10
        );
        return Err(222);
    }
    let (major, minor) = state.settings.capability;
    let has = (major * 10 + minor) as u32;
    let runs = if module.target.1 { module.target.0 == has } else { module.target.0 <= has };
    if !runs || code.is_some() && module.target.0 / 10 != has / 10 {
        return Err(209);
    }
    let handle = state.handle();
    state.modules.insert(handle, Module { context: CURRENT.get() });
    let max_threads = state.settings.function.get(&0).copied();
    let text = Arc::new(CString::new(text).map_err(|_| 218)?);
    let functions = module.entries.into_iter().map(|entry| Function {
        module: handle,
        text: text.clone(),
        name: entry.name,
        params: entry.params,
        block: entry.block,
        max_threads: max_threads.unwrap_or(1024) as u32,
        max_dynamic_shared: PLAIN_SHARED,
        large_clusters: false,
    });
    state.entries.insert(handle, functions.collect());
    Ok(handle)
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkCreate_v2(count: c_uint, options: *mut i32, values: *mut *mut c_void, link: *mut Handle) -> i32 {
    let errors = match count {
        0 => None,
        // SAFETY: there are `count` options with values.
        n => unsafe {
            let (options, values) = (std::slice::from_raw_parts(options, n as usize), values.cast_const());
            buffer(options, std::slice::from_raw_parts(values, n as usize), 5)
        },
    };
    call("cuLinkCreate_v2", When::Current, String::new(), |state| {
        let handle = state.handle();
        state.links.insert(handle, Link { context: CURRENT.get(), code: Vec::new(), errors });
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(link, handle as Handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkAddData_v2(
    link: Handle,
    kind: i32,
    data: *const c_void,
    size: usize,
    _: *const c_char,
    _: c_uint,
    _: *mut i32,
    _: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller's data, as long as its size says.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec();
    let mut log = crate::state::state().settings.log.clone();
    let code = call("cuLinkAddData_v2", When::Current, format!("{size} bytes"), |state| {
        // CU_JIT_INPUT_PTX, whose end is a zero.
        let text = CStr::from_bytes_with_nul(&data).ok().filter(|_| kind == 1).ok_or(1)?;
        let text = text.to_str().map_err(|_| 218)?.to_string();
        // Machine code is for the device; what cannot be loaded cannot be assembled.
        let module = load(state, &text, &mut log)?;
        state.modules.remove(&module);
        state.entries.remove(&module);
        let (number, exact) = ptx::read(&text).ok_or(218)?.target;
        let (major, minor) = state.settings.capability;
        let of = |number: u32| format!(".target sm_{number}");
        let code = if exact { text } else { text.replacen(&of(number), &of((major * 10 + minor) as u32), 1) };
        let own = state.links.get_mut(&(link as usize)).ok_or(400)?;
        own.code = [ELF.as_bytes(), code.as_bytes(), b"\0"].concat();
        Ok(())
    });
    let errors = crate::state::state().links.get(&(link as usize)).and_then(|own| own.errors);
    if code != 0 {
        // SAFETY: the buffer of the link's options is as large as its size says, and lives as long as the link.
        unsafe { say(&log, errors) };
    }
    code
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkComplete(link: Handle, code: *mut *const c_void, size: *mut usize) -> i32 {
    call("cuLinkComplete", When::Current, String::new(), |state| {
        let own = state.links.get(&(link as usize)).filter(|own| !own.code.is_empty()).ok_or(400)?;
        // SAFETY: the caller's pointers, as the prototype asks; the code lives as long as the link.
        unsafe {
            put(code, own.code.as_ptr().cast())?;
            put(size, own.code.len())
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLinkDestroy(link: Handle) -> i32 {
    call("cuLinkDestroy", When::Release, String::new(), |state| {
        state.links.remove(&(link as usize)).map(|_| ()).ok_or(400)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: Handle) -> i32 {
    call("cuModuleUnload", When::Release, String::new(), |state| {
        let context = state.modules.get(&(module as usize)).ok_or(400)?.context;
        state.idle(context)?;
        state.modules.remove(&(module as usize));
        state.entries.remove(&(module as usize));
        state.functions.retain(|_, f| f.module != module as usize);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) -> i32 {
    // SAFETY: the caller's C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    call("cuModuleGetFunction", When::Current, name.clone(), |state| {
        let entries = state.entries.get(&(module as usize)).ok_or(400)?;
        let found = entries.iter().find(|f| f.name == name).cloned().ok_or(500)?;
        let handle = state.handle();
        state.functions.insert(handle, found);
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(function, handle as Handle) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: Handle) -> i32 {
    call("cuFuncGetAttribute", When::Current, attribute.to_string(), |state| {
        let found = state.functions.get(&(function as usize)).ok_or(400)?;
        let (major, minor) = state.settings.capability;
        let usual = match attribute {
            0 => found.max_threads as i32,
            1..=3 => 0,
            4 => 32,
            5 | 6 => major * 10 + minor,
            8 => found.max_dynamic_shared as i32,
            _ => return Err(1),
        };
        let value_of = state.settings.function.get(&attribute).copied().unwrap_or(usual);
        // SAFETY: the caller's pointer, as the prototype asks.
        unsafe { put(value, value_of) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) -> i32 {
    call("cuFuncSetAttribute", When::Current, format!("{attribute} {value}"), |state| {
        let limit = state.attribute(97)?;
        let function = state.functions.get_mut(&(function as usize)).ok_or(400)?;
        match attribute {
            8 if (0..=limit).contains(&value) => function.max_dynamic_shared = value as u32,
            14 => function.large_clusters = value != 0,
            _ => return Err(1),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut i32,
    function: Handle,
    threads: i32,
    shared: usize,
) -> i32 {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", When::Current, format!("{threads} {shared}"), |state| {
        state.functions.get(&(function as usize)).ok_or(400)?;
        let (threads_at_once, shared_at_once) = (state.attribute(39)?, state.attribute(81)?);
        if threads < 1 {
            return Err(1);
        }
        let by_shared = if shared == 0 { i32::MAX } else { shared_at_once / shared as i32 };
        // SAFETY: as above.
        unsafe { put(blocks, (threads_at_once / threads).min(by_shared).min(32)) }
    })
}

#[cfg(not(age = "11.7"))]
#[unsafe(no_mangle)]
extern "C" fn cuOccupancyMaxActiveClusters(clusters: *mut i32, function: Handle, config: *const LaunchConfig) -> i32 {
    // SAFETY: the caller's configuration.
    let cluster = unsafe { (*config).cluster() };
    call("cuOccupancyMaxActiveClusters", When::Current, format!("{cluster:?}"), |state| {
        let function = state.functions.get(&(function as usize)).ok_or(400)?;
        let blocks: u32 = cluster.iter().product();
        let fits = blocks <= 8 || function.large_clusters && blocks <= 16;
        // SAFETY: as above.
        unsafe { put(clusters, if fits { state.attribute(16)? / blocks as i32 } else { 0 }) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetName(name: *mut *const c_char, function: Handle) -> i32 {
    call("cuFuncGetName", When::Current, String::new(), |state| {
        let text = state.functions.get(&(function as usize)).ok_or(400)?.name.clone();
        // SAFETY: as above.
        unsafe { put(name, state.lasting(text)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuKernelGetName(name: *mut *const c_char, kernel: Handle) -> i32 {
    cuFuncGetName(name, kernel)
}
