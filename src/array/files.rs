//! Arrays in files: NumPy's `.npy` and `.safetensors`.

use super::{Array, room_for};
use crate::dtype::DType;
use crate::error::{Code, Error, Result};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

/// What a .npy file begins with.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes of a header that are read at most.
const LONGEST_HEADER: u32 = 1 << 16;
/// Characters of a header that a message shows.
const SHOWN: usize = 80;

/// The types of .npy files that arrays can hold, without the order of bytes.
const NPY: [(&str, DType); 9] = [
    ("b1", DType::Bool),
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("i1", DType::S8),
    ("u1", DType::U8),
    ("i4", DType::S32),
    ("u4", DType::U32),
    ("i8", DType::S64),
];

/// The types of safetensors that arrays can hold.
const SAFE: [(Dtype, DType); 11] = [
    (Dtype::BOOL, DType::Bool),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::Bf16),
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
    (Dtype::F8_E4M3, DType::E4m3),
    (Dtype::F8_E5M2, DType::E5m2),
    (Dtype::I8, DType::S8),
    (Dtype::U8, DType::U8),
    (Dtype::I32, DType::S32),
    (Dtype::I64, DType::S64),
];

/// The format of a file and its name of an element type.
enum Format {
    Npy(&'static str),
    Safetensors(Dtype),
}

impl Format {
    /// Of a file to write, by the end of its name.
    fn of(path: &Path, dtype: DType, wrong: &dyn Fn(String) -> Error) -> Result<Format> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => {
                let none =
                    || wrong(format!(".npy has no type {dtype}")).help("a .safetensors file has bf16, e4m3 and e5m2");
                NPY.iter().find(|(_, own)| *own == dtype).map(|(form, _)| Format::Npy(form)).ok_or_else(none)
            }
            Some("safetensors") => {
                let none = || wrong(format!(".safetensors has no type {dtype}"));
                SAFE.iter().find(|(_, own)| *own == dtype).map(|(d, _)| Format::Safetensors(*d)).ok_or_else(none)
            }
            _ => Err(wrong("the name ends in neither .npy nor .safetensors".into())),
        }
    }
}

impl Array {
    /// Reads an array from a `.npy` file, or a tensor from a `.safetensors` file, whose name is then needed where the file holds
    /// several.
    ///
    /// `.npy`: little-endian, in C order, of f16, f32, f64, s8, u8, s32, u32, s64, bool. `.safetensors`: those but u32, and bf16, e4m3,
    /// e5m2.
    ///
    /// # Errors
    /// `array.file` where the file cannot be read or is of another form or type; as [`Array::zeros`] for its size.
    pub fn read(path: &Path, tensor: Option<&str>) -> Result<Array> {
        let wrong = |why: String| Error::input(Code::ArrayFile, format!("{}: {why}", path.display()));
        let file = || File::open(path).map_err(|e| wrong(e.to_string()));
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => npy(BufReader::new(file()?), &wrong),
            Some("safetensors") => {
                let mut bytes = Vec::new();
                file()?.read_to_end(&mut bytes).map_err(|e| wrong(e.to_string()))?;
                safe(&bytes, tensor, &wrong)
            }
            _ => Err(wrong("the name ends in neither .npy nor .safetensors".into())),
        }
    }

    /// Writes the array to a `.npy` file, or to a `.safetensors` file as the tensor of this name.
    ///
    /// # Errors
    /// `array.file` where the file cannot be written, or where its form has no such type: `.npy` has no bf16, neither has 4-bit
    /// integers.
    pub fn write(&self, path: &Path, tensor: &str) -> Result<()> {
        let wrong = |why: String| Error::input(Code::ArrayFile, format!("{}: {why}", path.display()));
        let bytes = match Format::of(path, self.dtype, &wrong)? {
            Format::Npy(form) => self.to_npy(form, &wrong)?,
            Format::Safetensors(dtype) => self.to_safe(dtype, tensor, &wrong)?,
        };
        File::create(path).and_then(|mut f| f.write_all(&bytes)).map_err(|e| wrong(e.to_string()))
    }

    /// Checks that [`Array::write`] has a format for a file of this name and for elements of this type.
    ///
    /// # Errors
    /// `array.file` as for [`Array::write`].
    pub fn check_name(path: &Path, dtype: DType) -> Result<()> {
        let wrong = |why: String| Error::input(Code::ArrayFile, format!("{}: {why}", path.display()));
        Format::of(path, dtype, &wrong).map(|_| ())
    }

    /// NEP 1's version 1.0: the header ends at a multiple of 64 bytes.
    fn to_npy(&self, form: &str, wrong: &dyn Fn(String) -> Error) -> Result<Vec<u8>> {
        let extents: String = self.shape.iter().map(|n| format!("{n}, ")).collect();
        let order = if self.dtype.bits() > 8 { '<' } else { '|' };
        let mut header = format!("{{'descr': '{order}{form}', 'fortran_order': False, 'shape': ({extents}), }}");
        header.push_str(&" ".repeat(63 - (MAGIC.len() + 4 + header.len()) % 64));
        header.push('\n');
        let length = u16::try_from(header.len()).map_err(|_| wrong("it has too many dimensions".into()))?;
        Ok([MAGIC, &[1, 0], &length.to_le_bytes(), header.as_bytes(), &self.bytes].concat())
    }

    fn to_safe(&self, dtype: Dtype, tensor: &str, wrong: &dyn Fn(String) -> Error) -> Result<Vec<u8>> {
        let view = TensorView::new(dtype, self.shape.clone(), &self.bytes).map_err(|e| wrong(e.to_string()))?;
        safetensors::serialize([(tensor, view)], None).map_err(|e| wrong(e.to_string()))
    }
}

fn npy(mut file: impl Read, wrong: &dyn Fn(String) -> Error) -> Result<Array> {
    let header = header(&mut file).map_err(|e| wrong(format!("it has no header of a .npy file ({e})")))?;
    let (form, is_fortran, shape) =
        parsed(&header).ok_or_else(|| wrong(format!("its header is not understood: {}", beginning(header.trim()))))?;
    let (order, kind) = form.split_at(form.len().min(1));
    let found = NPY.iter().find(|(theirs, _)| *theirs == kind);
    let dtype = found.ok_or_else(|| wrong(format!("elements of type {form} have no type here")))?.1;
    if order == ">" && dtype.bits() > 8 {
        return Err(wrong("its elements are big-endian".into()));
    }
    if is_fortran && shape.iter().filter(|n| **n > 1).count() > 1 {
        let error =
            wrong("its elements are in Fortran order, columns first; arrays here are in C order, rows first".into());
        return Err(error.help("in Python: numpy.save(FILE, numpy.ascontiguousarray(numpy.load(FILE)))"));
    }
    let mut array = Array::zeros(dtype, &shape)?;
    file.read_exact(&mut array.bytes).map_err(|e| wrong(format!("it is shorter than its header says ({e})")))?;
    Ok(array)
}

/// What a message shows of a text that may be long.
fn beginning(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() { format!("{shown} ..") } else { shown }
}

/// The text of the header (NumPy's format of versions 1 to 3).
fn header(file: &mut impl Read) -> std::io::Result<String> {
    let mut start = [0; 8];
    file.read_exact(&mut start)?;
    if !start.starts_with(MAGIC) {
        return Err(std::io::Error::other("another magic number"));
    }
    if !(1..=3).contains(&start[6]) {
        return Err(std::io::Error::other(format!("version {} of the format is not known", start[6])));
    }
    let length = if start[6] == 1 {
        let mut length = [0; 2];
        file.read_exact(&mut length)?;
        u32::from(u16::from_le_bytes(length))
    } else {
        let mut length = [0; 4];
        file.read_exact(&mut length)?;
        u32::from_le_bytes(length)
    };
    let mut text = Vec::new();
    file.take(u64::from(length.min(LONGEST_HEADER))).read_to_end(&mut text)?;
    if text.len() < length.min(LONGEST_HEADER) as usize {
        return Err(std::io::Error::other(format!("it ends after {} of {length} bytes", text.len())));
    }
    String::from_utf8(text).map_err(std::io::Error::other)
}

/// The type, whether the order is Fortran's, and the extents, of a header such as
/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parsed(header: &str) -> Option<(&str, bool, Vec<usize>)> {
    let value = |key: &str| Some(header.split_once(&format!("'{key}':"))?.1.trim_start());
    let form = value("descr")?.strip_prefix('\'')?.split_once('\'')?.0;
    let order = value("fortran_order")?;
    let extents = value("shape")?.strip_prefix('(')?.split_once(')')?.0;
    let words = extents.split(',').map(str::trim).filter(|word| !word.is_empty());
    let shape = words.map(|word| word.parse().ok()).collect::<Option<Vec<usize>>>()?;
    form.is_ascii().then(|| (form, order.starts_with("True"), shape))
}

fn safe(bytes: &[u8], tensor: Option<&str>, wrong: &dyn Fn(String) -> Error) -> Result<Array> {
    let all = SafeTensors::deserialize(bytes).map_err(|e| wrong(e.to_string()))?;
    let names: Vec<&str> = all.names();
    let name = match (tensor, &names[..]) {
        (Some(name), _) => name,
        (None, [one]) => one,
        (None, _) => {
            let listed: Vec<&str> = names.iter().copied().take(16).collect();
            return Err(wrong(format!("it holds {} tensors", names.len())).help(format!(
                "name one, `FILE:{}`: {}",
                listed.first().unwrap_or(&"TENSOR"),
                listed.join(", ")
            )));
        }
    };
    let view = all
        .tensor(name)
        .map_err(|e| wrong(format!("{name}: {e}{}", crate::error::suggestion(name, names.iter().copied()))))?;
    let found = SAFE.iter().find(|(theirs, _)| *theirs == view.dtype());
    let dtype = found.ok_or_else(|| wrong(format!("{name} is of type {:?}, which has no type here", view.dtype())))?.1;
    let mut held = room_for(view.data().len())?;
    held.extend_from_slice(view.data());
    Ok(Array { dtype, shape: view.shape().to_vec(), bytes: held })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("warploom-files-{}-{name}", std::process::id()))
    }

    #[test]
    fn files_hold_what_was_written() {
        for (dtype, ends) in [
            (DType::F16, "npy"),
            (DType::F32, "npy"),
            (DType::F64, "npy"),
            (DType::S8, "npy"),
            (DType::U8, "npy"),
            (DType::Bool, "npy"),
            (DType::Bool, "safetensors"),
            (DType::S32, "npy"),
            (DType::U32, "npy"),
            (DType::S64, "npy"),
            (DType::Bf16, "safetensors"),
            (DType::F16, "safetensors"),
            (DType::E4m3, "safetensors"),
            (DType::S64, "safetensors"),
        ] {
            let path = path(&format!("{dtype}.{ends}"));
            let array = Array::random(dtype, &[3, 1, 5], 7).unwrap();
            array.write(&path, "A").unwrap();
            assert_eq!(Array::read(&path, None).unwrap(), array, "{dtype} {ends}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let (s4, path) = (Array::zeros(DType::S4, &[4]).unwrap(), path("wrong.npy"));
        assert!(s4.write(&path, "A").unwrap_err().message().ends_with(".npy has no type s4"));
        for text in [&b"\x93NUMPY"[..], b"", b"PK"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Array::read(&path, None).unwrap_err().code(), Code::ArrayFile);
        }
        let header = |form: &str, order: &str, shape: &str| {
            let text = format!("{{'descr': '{form}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
            [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
        };
        for (form, order, shape, why) in [
            ("<f4", "False", "(4,)", "it is shorter than its header says"),
            ("<f4", "False", "(4611686018427387904, 4)", "is too large"),
            (">f4", "False", "(4,)", "its elements are big-endian"),
            ("<f4", "True", "(4, 4)", "are in Fortran order, columns first"),
            ("<c8", "False", "(4,)", "have no type here"),
            ("é", "False", "(4,)", "its header is not understood"),
            ("<f4", "False", "(4, -1)", "its header is not understood"),
            ("", "False", "(4,)", "have no type here"),
        ] {
            std::fs::write(&path, header(form, order, shape)).unwrap();
            let error = Array::read(&path, None).unwrap_err();
            assert!(error.message().contains(why), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Array::read(&path, None).unwrap_err().code(), Code::ArrayFile);
        assert!(Array::read(Path::new("a.txt"), None).unwrap_err().message().contains("neither .npy nor"));
    }
}
