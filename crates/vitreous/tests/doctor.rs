//! `vitreous doctor`, and what commands say where a GPU cannot be used. A driver that only pretends makes that the same on any machine.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Outcome, fixtures, vitreous, vitreous_within};
use serde_json::Value;
use tempfile::TempDir;

const BENCH: [&str; 6] = ["bench", "tiny_vit", "--seconds", "0", "--batch", "2"];

fn doctor() -> Value {
    vitreous(&["doctor", "--json"]).succeeded().json_lines().remove(0)
}

/// A folder with a driver that pretends.
struct FakeDriver {
    folder: TempDir,
}

impl FakeDriver {
    /// `None`, visibly, where this is not Linux, or where there is no compiler.
    fn make() -> Option<FakeDriver> {
        if !cfg!(target_os = "linux") {
            eprintln!("SKIPPED: a driver that pretends is made for Linux only");
            return None;
        }
        let folder = TempDir::new().expect("a folder");
        let rustc = std::env::var_os("RUSTC").map_or(PathBuf::from("rustc"), PathBuf::from);
        let source = fixtures().join("fake_driver/libcuda.rs");
        let made = match Command::new(rustc)
            .args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "-o"])
            .arg(folder.path().join("libcuda.so"))
            .arg(source)
            .output()
        {
            Ok(made) => made,
            Err(error) => {
                eprintln!("SKIPPED: no driver that pretends, because rustc does not start: {error}");
                return None;
            }
        };
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(FakeDriver { folder })
    }

    fn run(&self, arguments: &[&str], settings: &[(&str, &str)]) -> Outcome {
        let mut variables = vec![("LD_LIBRARY_PATH", self.folder.path())];
        variables.extend(settings.iter().map(|(name, value)| (*name, Path::new(*value))));
        vitreous_within(arguments, &variables)
    }

    /// Runs `bench` on a device.
    fn bench(&self, device: &str, settings: &[(&str, &str)]) -> Outcome {
        let mut arguments = BENCH.to_vec();
        arguments.extend(["--device", device]);
        self.run(&arguments, settings)
    }
}

#[test]
fn the_machine_is_told_in_text_and_json() {
    let cache = TempDir::new().expect("a folder");
    std::fs::create_dir(cache.path().join("kernels")).expect("a folder");
    std::fs::write(cache.path().join("kernels/some.kernel"), [0; 2048]).expect("written");
    let outcome = vitreous_within(&["doctor"], &[("VITREOUS_CACHE", cache.path())]).succeeded();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    for name in ["processor", "memory", "system", "driver", "NVRTC", "cuBLASLt", "NCCL", "CUDA runtime", "kernels"] {
        assert!(lines.iter().any(|line| line.starts_with(&format!("{name} "))), "{name} is not in {}", outcome.stdout);
    }
    assert!(lines.last().is_some_and(|line| line.starts_with("--device auto takes ")), "{}", outcome.stdout);
    // A trial on a GPU may have added its own.
    let folder = cache.path().join("kernels").display().to_string();
    assert!(outcome.stdout.contains(&format!("kept in {folder}: ")), "{}", outcome.stdout);

    let found = doctor();
    assert!(found["cores"].as_u64().is_some_and(|cores| cores > 0), "{found}");
    let auto = found["auto"]["device"].as_str().expect("a device");
    match found["gpus"].as_array().expect("a list").len() {
        0 => {
            assert_eq!((auto, found["auto"]["why"].is_string()), ("cpu", true), "{found}");
            assert!(outcome.stdout.contains("kernels: 1 file, 2.0 KiB"), "{}", outcome.stdout);
        }
        _ if found["auto"]["why"].is_null() => assert_eq!(auto, "cuda:0"),
        _ => assert_eq!(auto, "cpu"),
    }
    // What is missing comes with what to do.
    for library in ["driver", "nvrtc", "cublaslt"] {
        let (version, fault) = (&found[library]["version"], &found[library]["fault"]);
        assert!(version.is_string() || fault.as_str().is_some_and(|fault| fault.contains("install")), "{found}");
    }
}

#[test]
fn mpi_is_found_and_tried() {
    let found = doctor();
    let mpi = &found["mpi"];
    let libraries = mpi["libraries"].as_array().expect("a list");
    for library in libraries {
        let (version, abi) =
            (library["version"].as_str().expect("a version"), library["abi"].as_str().expect("an ABI"));
        assert_eq!(abi == "Open MPI", version.starts_with("Open MPI"), "{library}");
    }
    let text = vitreous(&["doctor"]).succeeded().stdout;
    assert!(text.lines().any(|line| line.starts_with("MPI ")), "{text}");
    let launchers = mpi["launchers"].as_array().expect("a list");
    if launchers.is_empty() {
        eprintln!("SKIPPED: there is no mpirun here");
    }
    for launcher in launchers {
        let has_library = libraries.iter().any(|library| library["abi"] == launcher["abi"]);
        assert_eq!(launcher["works"].as_bool(), Some(has_library), "{launcher}");
        // Under the launcher itself, the processes find each other, and one of them prints.
        if has_library {
            let path = launcher["path"].as_str().expect("a path");
            let output = Command::new(path)
                .args(["-n", "2", env!("CARGO_BIN_EXE_vitreous"), "doctor"])
                .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
                .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
                .output()
                .expect("it runs");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(text.matches("all found each other").count(), 1, "{text}");
            assert!(text.contains("2 on 1 host"), "{text}");
        }
    }
}

#[test]
fn a_launcher_without_its_library_is_told() {
    let folder = TempDir::new().expect("a folder");
    let fake = folder.path().join("mpirun");
    std::fs::write(&fake, "#!/bin/sh\necho 'HYDRA build details: Intel'\nexit 1\n").expect("written");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).expect("set");
        let run = vitreous_within(&["doctor", "--json"], &[("PATH", folder.path())]).succeeded();
        let mpi = &run.json_lines()[0]["mpi"];
        let launcher = &mpi["launchers"][0];
        assert_eq!((&launcher["works"], launcher["abi"].as_str()), (&Value::Bool(false), Some("MPICH")), "{mpi}");
        assert!(launcher["fault"].as_str().is_some_and(|fault| !fault.is_empty()), "{mpi}");
    }
}

#[test]
fn without_a_driver_the_cpu_computes_and_a_gpu_is_refused() {
    if doctor()["driver"]["version"].is_string() {
        eprintln!("SKIPPED: this machine has NVIDIA's driver");
        return;
    }
    for command in [
        &["bench", "tiny_vit"][..],
        &["predict", "tiny_vit", "pictures"],
        &["explain", "tiny_vit", "pictures"],
        &["eval", "tiny_fashion"],
        &["train"],
    ] {
        let mut arguments = command.to_vec();
        arguments.extend(["--device", "cuda:0"]);
        let outcome =
            vitreous(&arguments).failed(1, &["NVIDIA's driver was not found; ", "`--device cpu`", "vitreous doctor"]);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    }
    // No GPU is no news: nothing but what is computed on.
    let outcome = vitreous(&BENCH).succeeded();
    assert_eq!(outcome.stderr, "");
    assert!(outcome.stdout.lines().next().is_some_and(|line| line.contains(", on the CPU, ")), "{}", outcome.stdout);
}

#[test]
fn a_driver_that_is_too_old_is_said() {
    let Some(fake) = FakeDriver::make() else { return };
    let old = [("FAKE_VERSION", "11040")];
    let sentence = "NVIDIA's driver knows CUDA 11.4, but 12.0 is needed; install a newer driver";
    fake.bench("cuda:0", &old).failed(1, &[sentence]);
    // Left to choose, the CPU computes, and it is said why.
    let outcome = fake.bench("auto", &old).succeeded();
    assert_eq!(outcome.stderr, format!("note: {sentence}; computing on the CPU (`vitreous doctor` says more)\n"));
    assert!(outcome.stdout.contains(", on the CPU, "), "{}", outcome.stdout);
    let found = fake.run(&["doctor", "--json"], &old).succeeded().json_lines().remove(0);
    assert_eq!((&found["driver"]["version"], &found["driver"]["fault"]), (&"11.4".into(), &sentence.into()));
    let text = fake.run(&["doctor"], &old).succeeded().stdout;
    assert!(text.ends_with("NVIDIA's driver knows CUDA 11.4, but 12.0 is needed\n"), "{text}");
}

#[test]
fn a_driver_without_a_gpu_or_with_other_gpus_is_said() {
    let Some(fake) = FakeDriver::make() else { return };
    let none =
        ["starting the driver: there is no GPU that CUDA can use", "CUDA_VISIBLE_DEVICES", "CUDA_ERROR_NO_DEVICE"];
    fake.bench("cuda:0", &[("FAKE_INIT", "100")]).failed(1, &none);
    fake.bench("cuda:0", &[("FAKE_GPUS", "0")]).failed(1, &["no device is called cuda:0; there is no GPU"]);
    fake.bench("cuda:3", &[]).failed(1, &["no device is called cuda:3; there is only cuda:0"]);
    fake.bench("cuda:3", &[("FAKE_GPUS", "2")]).failed(1, &["no device is called cuda:3; there are cuda:0 to cuda:1"]);
    let note = fake.bench("auto", &[("FAKE_INIT", "999")]).succeeded().stderr;
    assert!(note.starts_with("note: starting the driver: the GPU does not answer, or was lost"), "{note}");
    let text = fake.run(&["doctor"], &[("FAKE_INIT", "100")]).succeeded().stdout;
    assert!(text.lines().any(|line| line.starts_with("GPUs ") && line.contains("there is no GPU")), "{text}");
}

#[test]
fn a_gpu_that_cannot_be_opened_is_listed_and_said() {
    let Some(fake) = FakeDriver::make() else { return };
    let found = fake.run(&["doctor", "--json"], &[]).succeeded().json_lines().remove(0);
    let gpu = &found["gpus"][0];
    assert_eq!((&gpu["device"], &gpu["name"]), (&"cuda:0".into(), &"Fake GPU".into()));
    assert_eq!((&gpu["memory_bytes"], &gpu["free_bytes"]), (&(8u64 << 30).into(), &Value::Null));
    let text = fake.run(&["doctor"], &[]).succeeded().stdout;
    assert!(text.contains("Fake GPU, compute capability 9.9, 9 processors, 8.0 GiB"), "{text}");
    // Where the libraries are, opening it is what fails; elsewhere the first that is missing is named.
    let sentence = match ["nvrtc", "cublaslt"].iter().find(|library| found[*library]["version"].is_null()) {
        Some(library) => found[*library]["fault"].as_str().expect("a fault").to_string(),
        None => "opening the GPU: the GPU is taken by another program alone".to_string(),
    };
    fake.bench("cuda:0", &[]).failed(1, &[&sentence]);
    assert!(fake.bench("auto", &[]).succeeded().stderr.starts_with(&format!("note: {sentence}")));
}

#[test]
fn training_says_what_it_computes_on() {
    let directory = TempDir::new().expect("a folder");
    let run = directory.path().join("run");
    let words = ["train", "train.epochs=1", "model.dim=8", "model.mlp_dim=8", "model.depth=1", "model.heads=1"];
    let mut arguments = words.to_vec();
    arguments.extend(["train.batch=1000", "--device", "cpu", "--threads", "2", "--out", run.to_str().expect("UTF-8")]);
    let outcome = vitreous(&arguments).succeeded();
    assert!(outcome.stderr.contains("\ndevice  the CPU, 2 threads\n"), "{}", outcome.stderr);
}
