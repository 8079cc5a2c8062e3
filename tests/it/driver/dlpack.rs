//! Arrays that two libraries share by DLPack: who frees what, when, and how often.

use super::mock::{Mock, alone};
use super::programs::{N, add, arguments, holds, launch, sum};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::time::Duration;
use warploom::error::Code;
use warploom::runtime::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_READ_ONLY, DLPACK_VERSION, DLPackVersion,
    DLTensor,
};
use warploom::runtime::{Device, DeviceBuffer};
use warploom::{Array, DType, Result};

/// What the deleters of this process have been called for: the first element of the array then, or the word of one without memory.
static DELETED: Mutex<Vec<f32>> = Mutex::new(Vec::new());

fn deleted() -> Vec<f32> {
    std::mem::take(&mut DELETED.lock().unwrap())
}

/// Another library's array: device memory, with what describes it.
struct Producer {
    memory: DeviceBuffer,
    shape: [i64; 1],
}

/// Device memory is host memory on the mock driver: the producer sees what has been computed when it gets the array back.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the context is the producer's box, and the memory holds N floats.
    let producer = unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Producer>()) };
    DELETED.lock().unwrap().push(unsafe { *(producer.memory.address() as *const f32) });
    // SAFETY: the tensor is a box, too.
    drop(unsafe { Box::from_raw(tensor) });
}

unsafe extern "C" fn delete_legacy(tensor: *mut DLManagedTensor) {
    DELETED.lock().unwrap().push(-1.0);
    // SAFETY: the tensor is a box without anything behind it.
    drop(unsafe { Box::from_raw(tensor) });
}

fn described(address: u64, shape: *mut i64) -> DLTensor {
    DLTensor {
        data: address as *mut c_void,
        device: DLDevice { device_type: 2, device_id: 0 },
        ndim: 1,
        dtype: DLDataType { code: 2, bits: 32, lanes: 1 },
        shape,
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    }
}

/// An array of N floats of another library.
fn produced(device: &Device) -> Box<DLManagedTensorVersioned> {
    let memory = device.upload(&Array::from_fn(DType::F32, &[N], |i| (i + 1) as f64).unwrap()).unwrap();
    let address = memory.address();
    let producer = Box::into_raw(Box::new(Producer { memory, shape: [N as i64] }));
    // SAFETY: the box lives until the deleter.
    let shape = unsafe { (*producer).shape.as_mut_ptr() };
    let (manager_ctx, dl_tensor) = (producer.cast(), described(address, shape));
    Box::new(DLManagedTensorVersioned {
        version: DLPACK_VERSION,
        manager_ctx,
        deleter: Some(delete),
        flags: 0,
        dl_tensor,
    })
}

fn import(device: &Device, tensor: Box<DLManagedTensorVersioned>) -> Result<DeviceBuffer> {
    // SAFETY: the tensor is a live one that nothing else consumes.
    unsafe { DeviceBuffer::from_dlpack(device, NonNull::from(Box::leak(tensor))) }
}

fn give_back(tensor: NonNull<DLManagedTensorVersioned>) {
    // SAFETY: as a consumer does, once.
    unsafe { (*tensor.as_ptr()).deleter.unwrap()(tensor.as_ptr()) };
}

#[test]
fn an_imported_array_is_given_back_when_its_work_is_done() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        let [x, y, _] = arguments(&device).unwrap();
        let z = import(&device, produced(&device)).unwrap();
        assert_eq!((z.dtype(), z.shape(), z.bytes()), (DType::F32, &[N][..], 4 * N));
        launch(&program, &[x, y, z]).unwrap();
        // The buffers are dropped in the order of the array; the kernel had been waiting, and its sum is there when the owner looks.
        assert_eq!(deleted(), [11.0]);

        let z = import(&device, produced(&device)).unwrap();
        assert!(holds(&z.download().unwrap(), 1.0));
        let again = z.duplicate().unwrap();
        drop(z);
        assert_eq!(deleted(), [1.0]);
        assert!(holds(&again.download().unwrap(), 1.0));
    });
}

#[test]
fn what_is_refused_is_given_back_once() {
    alone("devices 2", |_| {
        let device = Device::open(0).unwrap();
        let refused = |change: fn(&mut DLManagedTensorVersioned)| {
            let mut tensor = produced(&device);
            change(&mut tensor);
            let code = import(&device, tensor).unwrap_err().code();
            assert_eq!(deleted(), [1.0]);
            code
        };
        assert_eq!(refused(|t| t.version = DLPackVersion { major: 2, minor: 0 }), Code::DlpackVersion);
        assert_eq!(refused(|t| t.dl_tensor.device.device_type = 1), Code::DlpackDevice);
        assert_eq!(refused(|t| t.dl_tensor.device.device_id = 1), Code::DlpackDevice);
        assert_eq!(refused(|t| t.dl_tensor.dtype.lanes = 4), Code::DlpackType);
        assert_eq!(refused(|t| t.dl_tensor.ndim = -3), Code::DlpackShape);
        assert_eq!(refused(|t| t.dl_tensor.strides = Box::leak(Box::new(2))), Code::DlpackStrides);
        let mut tensor = produced(&device);
        tensor.version.major = 2;
        assert_eq!(
            import(&device, tensor).unwrap_err().to_string(),
            "error in the input [dlpack.version]: the array is one of DLPack 2.1, and version 1 is read\n  try: have the producer hand \
             over an array of DLPack 1 (`max_version` of `__dlpack__`)"
        );
    });
}

#[test]
fn arrays_that_came_as_read_only_are_inputs_alone() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        let [x, y, z] = arguments(&device).unwrap();
        let mut tensor = produced(&device);
        tensor.flags = DLPACK_READ_ONLY;
        let given = import(&device, tensor).unwrap();
        program.launch(&[&given, &y, &z]).unwrap();
        assert!(holds(&z.download().unwrap(), 11.0));
        let written = program.launch(&[&x, &y, &given]).unwrap_err();
        assert_eq!(written.message(), "argument Z of sum is written, and an array that came as read-only was given");
        let host = Array::zeros(DType::F32, &[N]).unwrap();
        for refused in [given.write(&host), given.poison(), given.fill_bytes(0)] {
            assert_eq!(refused.unwrap_err().code(), Code::DlpackReadOnly);
        }
        assert!(holds(&given.download().unwrap(), 1.0));
        // The mark is passed on; the older structure has none.
        let tensor = given.into_dlpack();
        // SAFETY: the tensor lives.
        assert_eq!(unsafe { tensor.as_ref() }.flags, DLPACK_READ_ONLY);
        let back = unsafe { DeviceBuffer::from_dlpack(&device, tensor) }.unwrap();
        assert_eq!(back.into_dlpack_legacy().unwrap_err().code(), Code::DlpackReadOnly);
        assert_eq!(deleted(), [1.0]);
    });
}

#[test]
fn an_exported_array_lives_until_its_deleter() {
    alone("", |mock| {
        let device = Device::open(0).unwrap();
        let array = Array::random(DType::Bf16, &[2, 3, 4], 1).unwrap();
        let buffer = device.upload(&array).unwrap();
        let address = buffer.address();
        let tensor = buffer.into_dlpack();
        // SAFETY: the tensor lives, and has three dimensions.
        let (managed, shape, strides) = unsafe {
            let managed = tensor.as_ref();
            let DLTensor { shape, strides, .. } = managed.dl_tensor;
            (managed, std::slice::from_raw_parts(shape, 3), std::slice::from_raw_parts(strides, 3))
        };
        let DLTensor { data, device: place, ndim, dtype, byte_offset, .. } = managed.dl_tensor;
        assert_eq!((managed.version, managed.flags, data as u64, byte_offset), (DLPACK_VERSION, 0, address, 0));
        assert_eq!((place, ndim), (DLDevice { device_type: 2, device_id: 0 }, 3));
        assert_eq!(
            (dtype, shape, strides),
            (DLDataType { code: 4, bits: 16, lanes: 1 }, &[2, 3, 4][..], &[12, 4, 1][..])
        );
        // Back as a buffer, and out again as the older structure: no copy, and one deleter frees all.
        let back = unsafe { DeviceBuffer::from_dlpack(&device, tensor) }.unwrap();
        assert_eq!(back.address(), address);
        let tensor = back.into_dlpack_legacy().unwrap();
        let back = unsafe { DeviceBuffer::from_dlpack_legacy(&device, tensor) }.unwrap();
        assert_eq!(back.download().unwrap(), array);
        assert!(mock.live().starts_with("allocations 1,"), "{}", mock.live());
        drop(back);
        assert!(mock.live().starts_with("allocations 0,"), "{}", mock.live());

        // The deleter may be the last user of the device, on any thread; null is no tensor.
        let tensor = device.alloc(DType::F32, &[4]).unwrap().into_dlpack();
        drop(device);
        assert!(mock.live().contains("allocations 1,") && mock.live().contains("contexts 1"), "{}", mock.live());
        // SAFETY: the deleter takes null.
        unsafe { (*tensor.as_ptr()).deleter.unwrap()(std::ptr::null_mut()) };
        let address = tensor.as_ptr() as usize;
        std::thread::spawn(move || give_back(NonNull::new(address as *mut _).unwrap())).join().unwrap();
    });
}

/// A tensor without memory of its own, as older producers hand it over.
fn legacy(
    shape: &'static mut [i64; 1],
    deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
) -> NonNull<DLManagedTensor> {
    let dl_tensor = described(0x1000, shape.as_mut_ptr());
    NonNull::from(Box::leak(Box::new(DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter })))
}

#[test]
fn the_older_structure_is_taken_and_may_have_no_deleter() {
    alone("", |_| {
        let device = Device::open(0).unwrap();
        let tensor = legacy(Box::leak(Box::new([8])), Some(delete_legacy));
        // SAFETY: nothing accesses the memory.
        let view = unsafe { DeviceBuffer::from_dlpack_legacy(&device, tensor) }.unwrap();
        assert_eq!((view.shape(), view.address()), (&[8][..], 0x1000));
        drop(view);
        assert_eq!(deleted(), [-1.0]);
        let tensor = legacy(Box::leak(Box::new([-8])), Some(delete_legacy));
        let refused = unsafe { DeviceBuffer::from_dlpack_legacy(&device, tensor) };
        assert_eq!((refused.unwrap_err().code(), deleted()), (Code::DlpackShape, vec![-1.0]));
        let tensor = legacy(Box::leak(Box::new([8])), None);
        drop(unsafe { DeviceBuffer::from_dlpack_legacy(&device, tensor) }.unwrap());
        assert_eq!(deleted(), [0.0; 0]);
        // SAFETY: without a deleter the tensor stays the producer's.
        drop(unsafe { Box::from_raw(tensor.as_ptr()) });
    });
}

#[test]
fn an_array_is_given_back_at_once_or_borrowed() {
    alone("", |driver| {
        let device = Device::open(0).unwrap();
        let tensor = legacy(Box::leak(Box::new([8])), Some(delete_legacy));
        // SAFETY: nothing accesses the memory.
        let view = unsafe { DeviceBuffer::from_dlpack_legacy(&device, tensor) }.unwrap();
        driver.journal();
        // SAFETY: as above.
        unsafe { view.give_back() };
        assert_eq!((deleted(), driver.journal().len()), (vec![-1.0], 0));
        let mut shape = [8];
        // SAFETY: as above.
        let borrowed = unsafe { DeviceBuffer::borrow_dlpack(&device, &described(0x1000, shape.as_mut_ptr())) }.unwrap();
        assert_eq!((borrowed.shape(), borrowed.address(), borrowed.is_read_only()), (&[8][..], 0x1000, false));
        let borrowed = borrowed.read_only();
        assert_eq!(borrowed.poison().unwrap_err().code(), Code::DlpackReadOnly);
        drop(borrowed);
        assert_eq!((deleted().len(), driver.journal().len()), (0, 0));
        let own = device.alloc(warploom::DType::F32, &[8]).unwrap();
        // SAFETY: as above.
        unsafe { own.give_back() };
        assert!(driver.journal().iter().any(|line| line.starts_with("cuMemFree")));
    });
}

#[test]
fn a_recording_and_a_fault_change_nothing_of_who_frees() {
    alone("", |mock| {
        mock.executor(sum);
        let device = Device::open(0).unwrap();
        let program = device.load(&add()).unwrap();
        let buffers = arguments(&device).unwrap();
        let given = import(&device, produced(&device)).unwrap();
        // Waiting would spoil the recording: what is dropped in it goes back after it.
        let graph = device.capture(|| {
            drop(given);
            assert_eq!(deleted(), [0.0; 0]);
            launch(&program, &buffers)
        });
        assert_eq!(deleted(), [1.0]);
        drop(graph.unwrap());
        // After a fault the driver answers nothing more, and the owner gets its array back all the same.
        let given = import(&device, produced(&device)).unwrap();
        mock.configure("fault add 700");
        launch(&program, &buffers).unwrap();
        assert_eq!(device.synchronize().unwrap_err().code(), Code::Driver(700));
        drop(given);
        assert_eq!(deleted(), [1.0]);
    });
}

#[test]
fn an_array_that_a_hung_kernel_uses_is_not_given_back() {
    super::mock::leaving(
        "allocations 4, modules 1, streams 1, events 0, graphs 0, contexts 1",
        "hang add forever",
        |mock: &Mock| {
            let device = Device::open(0).unwrap();
            let program = device.load(&add()).unwrap();
            let buffers = arguments(&device).unwrap();
            let given = import(&device, produced(&device)).unwrap();
            launch(&program, &buffers).unwrap();
            let hung = device.synchronize_within(Duration::from_millis(20)).unwrap_err();
            assert_eq!(hung.code(), Code::LaunchTimeout);
            drop(given);
            drop((program, buffers, device));
            assert_eq!(deleted(), [0.0; 0]);
            mock.journal();
        },
    );
}
