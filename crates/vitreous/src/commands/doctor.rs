//! `vitreous doctor`: what this machine has to compute with, and what to install where something is missing.

mod together;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use vitreous_engine::cuda::{self, Gpu, Libraries, Library};
use vitreous_engine::machine::{Machine, available_memory};
use vitreous_engine::{Device, Executor, Graph, Mode, Precision};

use crate::failure::Failure;
use together::Together;
use vitreous_pages::format;
use vitreous_runtime::described;
use vitreous_runtime::device::automatic;

/// Say what this machine has to compute with: processor, GPUs and their libraries, and what to install where something is missing
#[derive(Args)]
pub struct Doctor {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Find the other processes that were started with this one, and end: what `doctor` starts to see whether MPI works
    #[arg(long, hide = true, conflicts_with = "json")]
    trial: bool,
}

/// What was found.
struct Diagnosis {
    machine: Machine,
    libraries: Libraries,
    others: [Library; 2],
    /// Each with its free memory; or why there are none.
    gpus: Result<Vec<(Gpu, Option<u64>)>, String>,
    cache: Option<Cache>,
    /// What `--device auto` takes.
    chosen: Device,
    /// Why that is no GPU.
    why: Option<String>,
    /// What went wrong with a small piece of work on it.
    trial: Result<(), String>,
    /// Whether several processes can work together.
    together: Together,
}

/// The folder of compiled kernels.
struct Cache {
    path: PathBuf,
    files: usize,
    bytes: u64,
}

impl Doctor {
    pub fn run(&self) -> Result<(), Failure> {
        if self.trial {
            return together::try_out(&crate::ranks::join()?);
        }
        let Some(together) = Together::look()? else { return Ok(()) };
        let found = Diagnosis::look(together);
        let mut out = crate::say::stdout();
        if self.json {
            writeln!(out, "{}", found.json())?;
        } else {
            for line in found.lines() {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }
}

impl Diagnosis {
    fn look(together: Together) -> Diagnosis {
        let (chosen, why) = automatic(vitreous_runtime::threads());
        Diagnosis {
            machine: Machine::this(),
            libraries: Libraries::find(),
            others: Libraries::others(),
            gpus: cuda::gpus().map_err(|error| error.to_string()).map(|gpus| {
                let with_memory = |gpu: Gpu| {
                    let free = cuda::free_memory(&gpu).ok();
                    (gpu, free)
                };
                gpus.into_iter().map(with_memory).collect()
            }),
            cache: cuda::cache_folder().map(Cache::of),
            trial: try_out(&chosen).map_err(|error| error.to_string()),
            chosen,
            why: why.map(|error| error.to_string()),
            together,
        }
    }

    fn lines(&self) -> Vec<String> {
        let Machine { cpu, cores, memory, instruction_set, system } = &self.machine;
        let size = |bytes: u64| format::bytes(bytes as usize);
        let mut rows = vec![
            ("processor".to_string(), format!("{cpu}, {}, {instruction_set}", format::count(*cores, "core", "cores"))),
            ("memory".to_string(), of_which_free(*memory, available_memory())),
            ("system".to_string(), system.clone()),
        ];
        for library in &self.libraries.needed {
            let name = library.name.trim_start_matches("NVIDIA's ");
            rows.push((name.to_string(), self.about(library)));
        }
        for library in &self.others {
            let text = match &library.version {
                Some(version) if library.name == "NCCL" => version.clone(),
                Some(version) => format!("{version} (not needed)"),
                None => without_name(library),
            };
            rows.push((library.name.to_string(), text));
        }
        match &self.gpus {
            Ok(gpus) => {
                for (gpu, free) in gpus {
                    let (major, minor) = gpu.capability;
                    let text = format!(
                        "{}, compute capability {major}.{minor}, {}, {}",
                        gpu.name,
                        format::count(gpu.processors as usize, "processor", "processors"),
                        of_which_free(Some(gpu.memory), *free)
                    );
                    rows.push((format!("cuda:{}", gpu.ordinal), text));
                }
                if gpus.is_empty() {
                    rows.push(("GPUs".to_string(), "none".to_string()));
                }
            }
            // What is wrong with the driver was said.
            Err(_) if self.libraries.needed[0].fault.is_some() => {
                rows.push(("GPUs".to_string(), "none found".to_string()))
            }
            Err(error) => rows.push(("GPUs".to_string(), error.clone())),
        }
        rows.push((
            "kernels".to_string(),
            match &self.cache {
                Some(Cache { path, files, bytes }) => {
                    let path = format::one_line(&path.to_string_lossy());
                    format!("kept in {path}: {}, {}", format::count(*files, "file", "files"), size(*bytes))
                }
                None => "not kept, because no folder for it is known; VITREOUS_CACHE can name one".to_string(),
            },
        ));
        rows.extend(self.together.rows());
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut lines: Vec<String> = rows.into_iter().map(|(name, text)| format!("{name:width$}  {text}")).collect();
        lines.push(String::new());
        lines.push(self.verdict());
        lines
    }

    /// What is known of a library that is needed.
    fn about(&self, library: &Library) -> String {
        match (&library.version, &library.fault) {
            (Some(version), None) => match library.name {
                "NVRTC" | "cuBLASLt" => version.clone(),
                _ => format!("for CUDA {version}"),
            },
            (_, Some(_)) => without_name(library),
            (None, None) => "not found".to_string(),
        }
    }

    /// What `--device auto` takes, and why.
    fn verdict(&self) -> String {
        let device = described(&self.chosen);
        match (&self.why, &self.trial) {
            (_, Err(error)) => format!("--device auto takes {device}, on which a small trial failed: {error}"),
            (None, Ok(())) => format!("--device auto takes {device}: a small trial of kernels and products ran on it"),
            // What to do about it stands above.
            (Some(why), Ok(())) => {
                format!("--device auto takes {device}: {}", why.split_once("; ").map_or(why.as_str(), |(what, _)| what))
            }
        }
    }

    fn json(&self) -> Value {
        let library = |library: &Library| json!({"version": library.version, "fault": library.fault});
        let [driver, compiler, products] = &self.libraries.needed;
        let [nccl, runtime] = &self.others;
        let gpu = |(gpu, free): &(Gpu, Option<u64>)| {
            json!({
                "device": format!("cuda:{}", gpu.ordinal),
                "name": gpu.name,
                "capability": format!("{}.{}", gpu.capability.0, gpu.capability.1),
                "processors": gpu.processors,
                "memory_bytes": gpu.memory,
                "free_bytes": free,
            })
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": self.machine.cpu,
            "cores": self.machine.cores,
            "instruction_set": self.machine.instruction_set,
            "memory_bytes": self.machine.memory,
            "available_bytes": available_memory(),
            "system": self.machine.system,
            "driver": library(driver),
            "nvrtc": library(compiler),
            "cublaslt": library(products),
            "nccl": {"version": nccl.version},
            "cuda_runtime": {"version": runtime.version},
            "mpi": self.together.json(),
            "gpus": self.gpus.as_ref().map_or_else(|_| Vec::new(), |gpus| gpus.iter().map(gpu).collect()),
            "gpus_fault": self.gpus.as_ref().err(),
            "kernel_cache": self.cache.as_ref().map(|cache| json!({
                "path": cache.path.to_string_lossy(),
                "files": cache.files,
                "bytes": cache.bytes,
            })),
            "auto": {"device": self.chosen.name(), "why": self.why, "trial_fault": self.trial.as_ref().err()},
        })
    }
}

/// What is wrong with a library, where its name stands before.
fn without_name(library: &Library) -> String {
    let fault = library.fault.as_deref().unwrap_or("not found");
    let rest = fault.strip_prefix(library.name).map(str::trim_start).unwrap_or(fault);
    rest.strip_prefix("was ").unwrap_or(rest).to_string()
}

/// `139.8 GiB, 139.1 GiB of it free`.
fn of_which_free(all: Option<u64>, free: Option<u64>) -> String {
    let size = |bytes: u64| format::bytes(bytes as usize);
    match (all, free) {
        (Some(all), Some(free)) => format!("{}, {} of it free", size(all), size(free)),
        (Some(all), None) => size(all),
        (None, _) => "unknown".to_string(),
    }
}

impl Cache {
    fn of(path: PathBuf) -> Cache {
        let sizes = sizes(&path);
        Cache { files: sizes.len(), bytes: sizes.iter().sum(), path }
    }
}

/// The size of each file in a folder.
fn sizes(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|file| file.len())
        .collect()
}

/// Computes something small, so that what is found is known to work: on a GPU a kernel is compiled and loaded, and a product is made.
fn try_out(device: &Device) -> anyhow::Result<()> {
    const ROWS: usize = 16;
    const WIDTH: usize = 32;
    let mut graph = Graph::new(Mode::Inference, Precision::F32);
    let x = graph.input("x", [ROWS, WIDTH], vitreous_engine::DType::F32)?;
    let weight = graph.parameter("weight", [WIDTH, WIDTH])?;
    let product = graph.linear(x, weight, None)?;
    let shares = graph.softmax(product)?;
    let plan = device.plan_with_fixed_weights(&graph, &[shares])?;
    let ones = |_: &vitreous_engine::Parameter| Ok::<_, vitreous_engine::Error>(vec![1.0f32; WIDTH * WIDTH]);
    let mut executor = Executor::with_weights(plan, device, ones)?;
    executor.input("x")?.fill(0.5);
    executor.infer()?;
    let wrong = executor.output(shares)?.into_iter().find(|share| (share * WIDTH as f32 - 1.0).abs() > 1e-5);
    match wrong {
        None => Ok(()),
        Some(share) => anyhow::bail!("{share} came out in place of {}", 1.0 / WIDTH as f32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_computes() {
        try_out(&Device::Cpu { threads: 1 }).expect("the processor computes");
    }

    #[test]
    fn files_of_a_folder_are_counted() {
        let folder = std::env::temp_dir().join(format!("vitreous-doctor-{}", std::process::id()));
        assert_eq!(Cache::of(folder.clone()).files, 0);
        std::fs::create_dir_all(folder.join("inner")).expect("a folder");
        std::fs::write(folder.join("a.kernel"), [0; 10]).expect("written");
        std::fs::write(folder.join("b.kernel"), [0; 5]).expect("written");
        let cache = Cache::of(folder.clone());
        assert_eq!((cache.files, cache.bytes), (2, 15));
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_name() {
        let library = |version: Option<&str>, fault: &str| Library {
            name: "NVRTC",
            version: version.map(str::to_string),
            fault: Some(fault.to_string()),
        };
        assert_eq!(without_name(&library(None, "NVRTC was not found; install it")), "not found; install it");
        assert_eq!(without_name(&library(Some("1"), "NVRTC knows too little")), "knows too little");
    }
}
