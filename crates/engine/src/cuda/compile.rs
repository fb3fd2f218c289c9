//! Compiles kernels: NVRTC compiles for the present GPU, and the result is cached on disk by source, options and GPU.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::ffi::{CString, c_void};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::result as driver;
use cudarc::driver::sys;
use cudarc::nvrtc::result as compiler;

use super::device::{Device, failed};
use super::libraries::compiler_version;
use super::{stream, warpgroup};
use crate::error::{Error, Result};

/// Compiled kernels by their source.
pub(super) struct Kernels {
    modules: HashMap<String, Arc<Module>>,
    /// NVRTC's version: another one compiles other code.
    compiler: String,
    folder: Option<PathBuf>,
    device: Arc<Device>,
}

/// A loaded piece of machine code.
pub(super) struct Module {
    handle: sys::CUmodule,
}

/// What is loaded on a device, by its text: executors of one shape after another, as tests while training have them, load it once.
#[derive(Default)]
pub(super) struct Modules(Mutex<HashMap<String, Arc<Module>>>);

impl Modules {
    fn get(&self, source: &str) -> Option<Arc<Module>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(source).cloned()
    }

    fn insert(&self, source: &str, module: Module) -> Arc<Module> {
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(modules.entry(source.to_string()).or_insert_with(|| Arc::new(module)))
    }

    /// Unloads all that no executor has. The device must be the calling thread's.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

// SAFETY: a module is a handle that any thread with the context can use.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        let _together = stream::while_nothing_is_recorded();
        // SAFETY: loaded by `Kernels::module`, unloaded once.
        let _ = unsafe { driver::module::unload(self.handle) };
    }
}

impl Kernels {
    /// An empty set; compiled code goes into the user's cache folder.
    pub fn new(device: Arc<Device>) -> Kernels {
        let compiler = compiler_version().unwrap_or_default();
        Kernels { modules: HashMap::new(), compiler, folder: cache_folder(), device }
    }

    /// A kernel of a source. Kernels that need more shared memory than the default limit are allowed it here.
    pub fn function(&mut self, source: &str, entry: &str, shared_bytes: u32) -> Result<sys::CUfunction> {
        self.device.bind()?;
        if !self.modules.contains_key(source) {
            let module = self.module(source)?;
            self.modules.insert(source.to_string(), module);
        }
        let name = CString::new(entry).map_err(|_| Error::Machine(format!("{entry:?} is not a valid name")))?;
        let of = |error| failed(&format!("loading the kernel {entry}"), error);
        let gpu = self.device.gpu();
        if shared_bytes as usize > gpu.shared_bytes {
            return Err(Error::Machine(format!(
                "the kernel {entry} needs {shared_bytes} bytes of shared memory, and {} has {}; take smaller heads, or --device cpu",
                gpu.name, gpu.shared_bytes
            )));
        }
        // SAFETY: the module is loaded, and lives as long as these kernels.
        let function = unsafe { driver::module::get_function(self.modules[source].handle, name) }.map_err(of)?;
        if shared_bytes > 48 << 10 {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: as above.
            unsafe { driver::function::set_function_attribute(function, attribute, shared_bytes as i32) }
                .map_err(of)?;
        }
        Ok(function)
    }

    /// Loads sources; those that have to be compiled in several threads: a model has dozens, each of which takes a
    /// fraction of a second.
    pub fn load_all<'s>(&mut self, sources: impl Iterator<Item = &'s str>) -> Result<()> {
        self.device.bind()?;
        let mut wanted: Vec<&str> = Vec::new();
        for source in sources.filter(|source| !self.modules.contains_key(*source)).collect::<Vec<_>>() {
            match self.device.modules().get(source) {
                Some(module) => drop(self.modules.insert(source.to_string(), module)),
                None => wanted.push(source),
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(wanted.len());
        let found: Vec<Result<Vec<(usize, Arc<Module>)>>> = std::thread::scope(|scope| {
            let work = || {
                self.device.bind()?;
                let mut loaded = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(source) = wanted.get(index) else { return Ok(loaded) };
                    loaded.push((index, self.module(source)?));
                }
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let broken = || Err(Error::Machine("a thread that compiles kernels has died".to_string()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| broken())).collect()
        });
        for loaded in found {
            self.modules.extend(loaded?.into_iter().map(|(index, module)| (wanted[index].to_string(), module)));
        }
        Ok(())
    }

    /// What is loaded of a text, or loaded now.
    fn module(&self, source: &str) -> Result<Arc<Module>> {
        match self.device.modules().get(source) {
            Some(module) => Ok(module),
            None => Ok(self.device.modules().insert(source, self.load(source)?)),
        }
    }

    fn load(&self, source: &str) -> Result<Module> {
        let options = self.options();
        let kept = self.folder.as_ref().map(|folder| folder.join(self.file_name(source, &options)));
        let file = kept.as_ref().and_then(|path| std::fs::read(path).ok());
        if let Some(Ok(module)) = file.as_deref().and_then(checked).map(load) {
            return Ok(module);
        }
        let code = compile(source, &options)?;
        if let Some(path) = kept {
            // Only a cache: if it cannot be written, the next start compiles again.
            let _ = keep(&path, &code);
        }
        load(&code)
    }

    fn options(&self) -> Vec<String> {
        let (major, minor) = self.device.gpu().capability;
        // Features that only Hopper has must be requested.
        let own = if (major, minor) == warpgroup::CAPABILITY { "a" } else { "" };
        vec![format!("--gpu-architecture=sm_{major}{minor}{own}"), "--std=c++17".to_string()]
    }

    /// Named after everything that the code depends on.
    fn file_name(&self, source: &str, options: &[String]) -> String {
        let mut hasher = DefaultHasher::new();
        (source, options, &self.compiler, env!("CARGO_PKG_VERSION")).hash(&mut hasher);
        format!("{:016x}.kernel", hasher.finish())
    }
}

/// The cache folder for compiled kernels: `VITREOUS_CACHE`, or the user's default. `None` if the system defines none.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("VITREOUS_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("vitreous")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/vitreous")))?;
    Some(cache.join("kernels"))
}

/// Writes code and its checksum to a file, atomically.
fn keep(path: &Path, code: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mark = format!("{}-{:?}.new", std::process::id(), std::thread::current().id());
    let new = path.with_extension(mark.replace(['(', ')'], ""));
    let written = std::fs::write(&new, [code, &sum_of(code)].concat()).and_then(|()| std::fs::rename(&new, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written
}

/// The code of a file written by [`keep`]. The driver is not told the length, so truncated code must not be loaded: a
/// file cut short by a crash or a full disk is ignored.
fn checked(file: &[u8]) -> Option<&[u8]> {
    let (code, sum) = file.split_last_chunk()?;
    (*sum == sum_of(code)).then_some(code)
}

fn sum_of(code: &[u8]) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    code.hash(&mut hasher);
    hasher.finish().to_le_bytes()
}

/// Loads code generated by NVRTC.
fn load(code: &[u8]) -> Result<Module> {
    let _together = stream::while_nothing_is_recorded();
    // SAFETY: the code is complete, and the driver copies it.
    let handle = unsafe { driver::module::load_data(code.as_ptr().cast::<c_void>()) };
    Ok(Module { handle: handle.map_err(|error| failed("loading a kernel", error))? })
}

pub(super) fn compile(source: &str, options: &[String]) -> Result<Vec<u8>> {
    let broken = |what: &str| {
        let version = compiler_version().unwrap_or_default();
        Error::Machine(format!(
            "NVRTC {version} could not compile a kernel: {}; {}",
            first_error(what),
            advice_on(what)
        ))
    };
    let text = CString::new(source).map_err(|_| broken("its text has a zero byte"))?;
    let program = compiler::create_program(&text, None).map_err(|error| broken(&error.to_string()))?;
    // SAFETY: the program is alive until it is destroyed below.
    unsafe {
        let compiled = compiler::compile_program(program, options);
        let found = match compiled {
            Ok(()) => machine_code(program).map_err(|error| broken(&error.to_string())),
            Err(error) => Err(broken(&log_of(program).unwrap_or_else(|| error.to_string()))),
        };
        let _ = compiler::destroy_program(program);
        found
    }
}

/// The relevant line of the compiler's log.
fn first_error(report: &str) -> &str {
    let mut lines = report.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.clone().next().unwrap_or("?");
    lines.find(|line| line.contains("error")).unwrap_or(first)
}

fn advice_on(report: &str) -> &'static str {
    match report.contains("gpu-architecture") {
        true => "it is older than the GPU: install one of the driver's CUDA",
        false => "please report it, with the command and what `vitreous doctor` says",
    }
}

/// # Safety
/// The program must be compiled.
unsafe fn machine_code(program: cudarc::nvrtc::sys::nvrtcProgram) -> Result<Vec<u8>, compiler::NvrtcError> {
    use cudarc::nvrtc::sys::{nvrtcGetCUBIN, nvrtcGetCUBINSize};
    let mut size = 0;
    // SAFETY: the program is compiled, and the buffer has the size that it says.
    unsafe {
        nvrtcGetCUBINSize(program, &mut size).result()?;
        let mut code = vec![0u8; size];
        nvrtcGetCUBIN(program, code.as_mut_ptr().cast()).result()?;
        Ok(code)
    }
}

/// # Safety
/// The program must be alive.
unsafe fn log_of(program: cudarc::nvrtc::sys::nvrtcProgram) -> Option<String> {
    // SAFETY: guaranteed by the caller.
    let log = unsafe { compiler::get_program_log(program) }.ok()?;
    let bytes: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|&byte| byte != 0).collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_was_cut_short_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kernels").join("some.kernel");
        let code: Vec<u8> = (0..5000).map(|byte| (byte % 251) as u8).collect();
        keep(&path, &code).unwrap();
        let file = std::fs::read(&path).unwrap();
        assert_eq!(checked(&file), Some(code.as_slice()));
        for length in [0, 1, 8, 9, 4096, file.len() - 1] {
            assert_eq!(checked(&file[..length]), None, "{length} bytes");
        }
        let mut spoiled = file.clone();
        spoiled[3000] ^= 1;
        assert_eq!(checked(&spoiled), None);
    }

    #[test]
    fn what_could_not_be_kept_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        // A folder in place of the file.
        let path = folder.path().join("some.kernel");
        std::fs::create_dir_all(path.join("inside")).unwrap();
        assert!(keep(&path, b"code").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_the_compiler_says_becomes_a_sentence() {
        let old = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
        assert_eq!(first_error(old), "nvrtc: error: invalid value for --gpu-architecture (-arch)");
        assert!(advice_on(old).contains("older than the GPU"));
        let fault = "default_program(3): warning #177-D: unused\n\ndefault_program(7): error: identifier \"x\" is undefined\n\n1 error\n";
        assert_eq!(first_error(fault), "default_program(7): error: identifier \"x\" is undefined");
        assert!(advice_on(fault).contains("report"));
        assert_eq!([first_error(""), first_error("\nNVRTC_ERROR\n")], ["?", "NVRTC_ERROR"]);
    }
}

/// For tests of kernel sources.
#[cfg(test)]
pub(super) mod testing {
    use std::collections::HashSet;

    use super::compile;

    /// An A100 and an H200.
    pub const ARCHITECTURES: [&str; 2] = ["sm_80", "sm_90a"];

    /// Compiles sources for GPU architectures, if there is a compiler.
    pub fn compile_all(texts: &HashSet<String>, architectures: &[&str]) {
        // SAFETY: only looks for the library.
        if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
            eprintln!("skipped: NVRTC was not found");
            return;
        }
        for text in texts {
            for architecture in architectures {
                let options = [format!("--gpu-architecture={architecture}"), "--std=c++17".to_string()];
                if let Err(error) = compile(text, &options) {
                    panic!("{error}\n{text}");
                }
            }
        }
    }
}
