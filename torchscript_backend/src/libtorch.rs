//! What tch does not offer, or not safely: memory lent by the server as tensors, calls of a module that free what they were
//! given also when they fail, autocast, and libtorch's part for GPUs. The only file of this folder with unsafe code.

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
use tch::{Device, Kind, TchError, Tensor};
use torch_sys::{C_tensor, CIValue, CModule_};
use triton_backend_api::{Buffer, Output};

/// The number of a device where libtorch's wrapper wants one.
fn number(device: Device) -> c_int {
    match device {
        Device::Cuda(id) => id as c_int,
        _ => -1,
    }
}

/// The error that the last call left behind on this thread, if any.
fn check() -> Result<(), TchError> {
    // SAFETY: takes nothing, and hands over the text.
    take_text(unsafe { torch_sys::get_and_reset_last_err() })
        .map_or(Ok(()), |text| Err(TchError::Torch(text)))
}

/// Takes over a text that libtorch's wrapper allocated; `None` for null.
fn take_text(text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the wrapper returns NUL-terminated strings from malloc, which are the caller's; read before freed, once.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        Some(copy)
    }
}

/// A tensor that may lie in memory lent by the server.
pub struct Lent<'a> {
    tensor: Tensor,
    /// Whether the memory is the server's.
    lent: bool,
    memory: PhantomData<&'a [u8]>,
}

impl<'a> Lent<'a> {
    /// A tensor in place over `bytes`; a copy only where they are not aligned to the type.
    pub fn over(bytes: &'a [u8], shape: &[i64], kind: Kind) -> Result<Self, TchError> {
        check_size(bytes.len(), shape, kind)?;
        let lent = bytes.as_ptr().align_offset(kind.elt_size_in_bytes()) == 0;
        let tensor = match lent {
            // SAFETY: the bytes are as many as the shape needs and aligned to the type. They live for 'a, the server's
            // loan. A module that may write to them or keep a view beyond that gets a copy (see input_use); from one
            // that holds the tensor itself all the same, drop takes the storage away.
            true => unsafe { Tensor::f_from_blob(bytes.as_ptr(), shape, &[], kind, Device::Cpu) },
            false => Tensor::f_from_data_size(bytes, shape, kind),
        }?;
        Ok(Self { tensor, lent, memory: PhantomData })
    }

    /// A tensor in place over a buffer that lies on `device` and is aligned to the type.
    pub fn over_buffer(
        buffer: &Buffer<'a>,
        shape: &[i64],
        kind: Kind,
        device: Device,
    ) -> Result<Self, TchError> {
        check_size(buffer.byte_size(), shape, kind)?;
        // SAFETY: the buffer has as many bytes as the shape needs. For their life, see `over`. libtorch asks the driver
        // on which GPU they lie, and refuses those of another.
        let tensor = unsafe { Tensor::f_from_blob(buffer.as_ptr(), shape, &[], kind, device) }?;
        Ok(Self { tensor, lent: true, memory: PhantomData })
    }

    /// A tensor with memory of its own.
    pub fn own(tensor: Tensor) -> Self {
        Self { tensor, lent: false, memory: PhantomData }
    }

    /// Whether the memory is the server's, and not the tensor's own.
    pub fn is_lent(&self) -> bool {
        self.lent
    }

    /// For use while `self` lives; keep no clone.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The same tensor through other strides over the same memory.
    pub fn restrided(&self, strides: &[i64]) -> Result<Self, TchError> {
        let tensor = self.tensor.f_as_strided(self.tensor.size(), strides, None)?;
        Ok(Self { tensor, lent: self.lent, memory: PhantomData })
    }
}

impl Drop for Lent<'_> {
    /// Whoever still holds the tensor finds it empty from now on. (Views of it are not reached.)
    fn drop(&mut self) {
        if let (true, Ok(kind)) = (self.lent, self.tensor.f_kind()) {
            let device = self.tensor.device();
            let emptied =
                Tensor::f_empty([0], (kind, device)).and_then(|empty| self.tensor.f_set_data(&empty));
            debug_assert!(emptied.is_ok(), "{emptied:?}");
        }
    }
}

fn check_size(bytes: usize, shape: &[i64], kind: Kind) -> Result<(), TchError> {
    let size = kind.elt_size_in_bytes();
    match shape.iter().try_fold(size, |product, dim| product.checked_mul(usize::try_from(*dim).ok()?)) {
        Some(product) if product == bytes => Ok(()),
        _ => Err(TchError::Shape(format!(
            "{bytes} bytes do not hold a tensor of shape {shape:?} and type {kind:?}"
        ))),
    }
}

/// Copies `tensor` as elements of `kind` in C order to `out`, which has their size in bytes.
pub fn copy_out(tensor: &Tensor, kind: Kind, out: &mut [u8]) -> Result<(), TchError> {
    // SAFETY: host memory, borrowed exclusively for longer than the copy takes.
    unsafe { copy_to(tensor, kind, out.as_mut_ptr(), out.len(), Device::Cpu) }
}

/// As [`copy_out`], to an output that lies on the GPU `device`. The copy is only queued.
pub fn copy_to_gpu(
    tensor: &Tensor,
    kind: Kind,
    output: &mut Output<'_>,
    device: Device,
) -> Result<(), TchError> {
    // SAFETY: the output's own memory, which stays until the response is sent, and that is after the copy was waited for.
    unsafe { copy_to(tensor, kind, output.as_mut_ptr(), output.byte_size(), device) }
}

/// # Safety
/// There are `size` bytes at `base` in the memory of `device`, the caller's alone until the copy is done.
unsafe fn copy_to(
    tensor: &Tensor,
    kind: Kind,
    base: *mut u8,
    size: usize,
    device: Device,
) -> Result<(), TchError> {
    let shape = tensor.size();
    check_size(size, &shape, kind)?;
    if size == 0 {
        return Ok(());
    }
    let aligned = base.align_offset(kind.elt_size_in_bytes()) == 0;
    let (shape, unit) = if aligned { (shape, kind) } else { (vec![size as i64], Kind::Uint8) };
    // SAFETY: as many bytes as the shape needs, aligned to the type; see above. libtorch asks the driver whether they lie on
    // that GPU, and refuses those of another.
    let mut target = unsafe { Tensor::f_from_blob(base, &shape, &[], unit, device) }?;
    match aligned {
        true => target.f_copy_(tensor),
        false => target.f_copy_(&tensor.f_to_kind(kind)?.f_reshape([-1])?.f_view_dtype(unit)?),
    }
}

/// A value of the TorchScript interpreter.
pub struct Value(NonNull<CIValue>);

/// What a value is, for those who take tensors.
#[derive(Debug)]
pub enum Content {
    Tensor(Tensor),
    /// The values of a tuple or a list.
    Sequence(Vec<Content>),
    /// A dictionary with strings as keys.
    Dictionary(Vec<(String, Content)>),
    /// Anything else, by its name.
    Other(&'static str),
}

impl Value {
    fn new(raw: *mut CIValue) -> Result<Self, TchError> {
        check()?;
        NonNull::new(raw).map(Self).ok_or_else(|| TchError::Torch("libtorch made no value".to_owned()))
    }

    pub fn none() -> Result<Self, TchError> {
        // SAFETY: takes nothing; the value is ours.
        Self::new(unsafe { torch_sys::ati_none() })
    }

    /// The value shares the tensor.
    pub fn tensor(tensor: &Tensor) -> Result<Self, TchError> {
        // SAFETY: a live tensor, which the wrapper only reads; the value is ours.
        Self::new(unsafe { torch_sys::ati_tensor(tensor.as_ptr().cast_mut()) })
    }

    /// A dictionary that shares the tensors.
    pub fn dictionary<'t>(
        entries: impl IntoIterator<Item = (&'t str, &'t Tensor)>,
    ) -> Result<Self, TchError> {
        let mut values = Vec::new();
        for (key, tensor) in entries {
            let key = CString::new(key)?;
            // SAFETY: a live NUL-terminated string, which the wrapper copies; the value is ours.
            values.push(Self::new(unsafe { torch_sys::ati_string(key.as_ptr()) })?);
            values.push(Self::tensor(tensor)?);
        }
        let raw: Vec<_> = values.iter().map(|value| value.0.as_ptr()).collect();
        // SAFETY: as many pairs of live values as the count says, which the wrapper copies; the value is ours.
        Self::new(unsafe { torch_sys::ati_generic_dict(raw.as_ptr(), (raw.len() / 2) as c_int) })
    }

    fn content(&self) -> Result<Content, TchError> {
        let raw = self.0.as_ptr();
        // SAFETY: a live value.
        let tag = unsafe { torch_sys::ati_tag(raw) };
        Ok(match tag {
            // SAFETY: a live value that is a tensor; what comes back is ours.
            1 => Content::Tensor(own_tensor(unsafe { torch_sys::ati_to_tensor(raw) })?),
            5 => self.sequence(torch_sys::ati_to_tuple)?,
            12 => self.sequence(torch_sys::ati_to_generic_list)?,
            10 => {
                let tensors = self.read(1, torch_sys::ati_to_tensor_list)?.into_iter();
                Content::Sequence(
                    tensors.map(|raw| own_tensor(raw).map(Content::Tensor)).collect::<Result<_, _>>()?,
                )
            }
            13 => {
                let pairs = self.read(2, torch_sys::ati_to_generic_dict)?;
                let pairs = pairs.into_iter().map(Self::new).collect::<Result<Vec<_>, _>>()?;
                let mut entries = Vec::with_capacity(pairs.len() / 2);
                for pair in pairs.chunks_exact(2) {
                    match pair[0].text()? {
                        Some(key) => entries.push((key, pair[1].content()?)),
                        None => return Ok(Content::Other("a dictionary with keys other than str")),
                    }
                }
                Content::Dictionary(entries)
            }
            0 => Content::Other("None"),
            2 => Content::Other("float"),
            3 => Content::Other("int"),
            4 => Content::Other("bool"),
            9 => Content::Other("str"),
            14 => Content::Other("an object"),
            _ => {
                // A tag the wrapper does not know is an error of its own, which nobody needs beside this name.
                let _ = check();
                Content::Other("another type")
            }
        })
    }

    /// The text of a string; `None` for other values.
    fn text(&self) -> Result<Option<String>, TchError> {
        let raw = self.0.as_ptr();
        // SAFETY: a live value, asked for its text only if it is a string.
        let text = unsafe { (torch_sys::ati_tag(raw) == 9).then(|| torch_sys::ati_to_string(raw)) };
        check()?;
        Ok(text.and_then(take_text))
    }

    fn sequence(&self, elements: Elements<CIValue>) -> Result<Content, TchError> {
        let values = self.read(1, elements)?.into_iter().map(|raw| Self::new(raw)?.content());
        values.collect::<Result<_, _>>().map(Content::Sequence)
    }

    /// Reads the elements of a collection, `per_element` pointers for each, with the function for its kind.
    fn read<T>(&self, per_element: usize, elements: Elements<T>) -> Result<Vec<*mut T>, TchError> {
        // SAFETY: a live value; one without a length is an error.
        let count = unsafe { torch_sys::ati_length(self.0.as_ptr()) };
        check()?;
        let mut places = vec![std::ptr::null_mut(); usize::try_from(count).unwrap_or(0) * per_element];
        // SAFETY: a live value of the function's kind, and as many places as it fills.
        unsafe { elements(self.0.as_ptr(), places.as_mut_ptr(), count) };
        check().map(|()| places)
    }
}

/// A function of libtorch's wrapper that hands over the elements of a collection.
type Elements<T> = unsafe extern "C" fn(*mut CIValue, *mut *mut T, c_int);

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { torch_sys::ati_free(self.0.as_ptr()) };
    }
}

fn own_tensor(raw: *mut C_tensor) -> Result<Tensor, TchError> {
    check()?;
    let raw = NonNull::new(raw).ok_or_else(|| TchError::Torch("libtorch made no tensor".to_owned()))?;
    // SAFETY: a tensor that the wrapper handed over.
    Ok(unsafe { Tensor::from_ptr(raw.as_ptr()) })
}

/// A loaded TorchScript module.
pub struct Module(NonNull<CModule_>);

// SAFETY: a module has no tie to a thread, and libtorch lets several threads call one.
unsafe impl Send for Module {}
// SAFETY: as above; calls through `&self` change only what libtorch locks itself, or what the module's own code does.
unsafe impl Sync for Module {}

impl Module {
    /// Loads the file at `path` to `device`, wherever it was saved.
    pub fn load(path: &Path, device: Device) -> Result<Self, TchError> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: a live NUL-terminated string; the module is ours.
        let raw = unsafe { torch_sys::atm_load_on_device(path.as_ptr(), number(device)) };
        check()?;
        NonNull::new(raw).map(Self).ok_or_else(|| TchError::Torch("libtorch made no module".to_owned()))
    }

    /// The parameters; they share the module's tensors.
    pub fn parameters(&self) -> Result<Vec<Tensor>, TchError> {
        extern "C" fn add(list: *mut c_void, _name: *const c_char, tensor: *mut C_tensor) {
            // SAFETY: called during the call below only, with the list passed there and a tensor that is handed over.
            unsafe { (*list.cast::<Vec<Tensor>>()).push(Tensor::from_ptr(tensor)) };
        }
        let mut list: Vec<Tensor> = Vec::new();
        // SAFETY: a live module, and a list that lives through the call.
        unsafe { torch_sys::atm_named_parameters(self.0.as_ptr(), (&raw mut list).cast(), add) };
        check().map(|()| list)
    }

    /// Calls `forward()`.
    pub fn forward(&self, arguments: &[Value]) -> Result<Content, TchError> {
        let arguments: Vec<_> = arguments.iter().map(|value| value.0.as_ptr()).collect();
        // SAFETY: a live module and as many live values as the count says, which the wrapper copies; the result is ours.
        let returned =
            unsafe { torch_sys::atm_forward_(self.0.as_ptr(), arguments.as_ptr(), arguments.len() as c_int) };
        Value::new(returned)?.content()
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { torch_sys::atm_free(self.0.as_ptr()) };
    }
}

/// Sets the number of inter-op threads, which libtorch allows once in a process, before their first use.
pub fn set_interop_threads(count: i32) -> Result<(), TchError> {
    // SAFETY: takes a plain number. (tch panics where libtorch refuses.)
    unsafe { torch_sys::at_set_num_interop_threads(count) };
    check()
}

/// Loads the part of libtorch that works on GPUs, and counts those that it can use. It stays for the life of the process.
pub fn gpus() -> Result<i64, String> {
    const LIBRARY: &str = "libtorch_cuda.so";
    static LOADED: OnceLock<Library> = OnceLock::new();
    if LOADED.get().is_none() {
        // SAFETY: the rest of the libtorch that this library is linked with, which registers itself there.
        let library = unsafe { Library::open(Some(LIBRARY), RTLD_LAZY | RTLD_GLOBAL) };
        let library = library.map_err(|error| {
            let linker = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            format!("{LIBRARY} cannot be loaded: {linker}")
        })?;
        LOADED.get_or_init(|| library);
    }
    // SAFETY: takes nothing.
    let count = unsafe { torch_sys::cuda::atc_cuda_device_count() };
    check().map(|()| i64::from(count)).map_err(|error| format!("libtorch cannot count the GPUs: {error}"))
}

/// Whether the machine has NVIDIA's driver.
pub fn has_driver() -> bool {
    // SAFETY: the driver's library, which does nothing before its first call.
    unsafe { Library::open(Some("libcuda.so.1"), RTLD_LAZY) }.is_ok()
}

// C++ functions, which take and return plain numbers: c10::DeviceType and c10::ScalarType are enums over int8_t. They exist
// under these names in the libtorch that tch is made for; with another this library does not link.
unsafe extern "C" {
    #[link_name = "_ZN2at8autocast20set_autocast_enabledEN3c1010DeviceTypeEb"]
    fn set_autocast_enabled(device: i8, enabled: bool);
    #[link_name = "_ZN2at8autocast18set_autocast_dtypeEN3c1010DeviceTypeENS1_10ScalarTypeE"]
    fn set_autocast_dtype(device: i8, kind: i8);
}

/// While it lives, operators that gain by it compute in half precision on this thread.
pub struct Autocast {
    device: i8,
    thread: PhantomData<*const ()>,
}

impl Autocast {
    /// `kind` is Half or BFloat16.
    pub fn new(kind: Kind, device: Device) -> Self {
        // The numbers of c10::DeviceType and c10::ScalarType.
        let device = i8::from(device.is_cuda());
        let kind = if kind == Kind::Half { 5 } else { 15 };
        // SAFETY: a device that has autocast, a type that it has there: they do not throw.
        unsafe {
            set_autocast_dtype(device, kind);
            set_autocast_enabled(device, true);
        }
        Self { device, thread: PhantomData }
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // SAFETY: as above; the second takes nothing, and lets go of converted weights that this thread keeps.
        unsafe {
            set_autocast_enabled(self.device, false);
            torch_sys::at_autocast_clear_cache();
        }
    }
}

#[cfg(test)]
mod tests;
