//! Whether several processes can work together: which MPI libraries and launchers are here, and whether a launcher's processes find each
//! other.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use serde_json::{Value, json};
use vitreous_engine::collective::mpi::{Abi, Installed, installed};
use vitreous_engine::collective::{Launch, Launcher as Starter, Wire};
use vitreous_engine::cuda;
use vitreous_train::Ranks;

use crate::failure::Failure;

/// Launchers: the usual name, and those by which Debian tells them apart.
const LAUNCHERS: [&str; 4] = ["mpirun", "mpirun.openmpi", "mpirun.mpich", "mpiexec.hydra"];
/// Processes of a trial.
const TRIED: usize = 2;
/// A trial that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the line of a trial begins with that tells of GPUs.
const GPUS: &str = "gpus: ";
/// How often it is looked whether it has ended.
const GLANCE: Duration = Duration::from_millis(20);

/// What was found.
pub struct Together {
    libraries: Vec<Installed>,
    launchers: Vec<Launcher>,
    /// The processes that were started with this one, in words, and whether their GPUs work together.
    ranks: Option<String>,
    gpus: Option<String>,
}

/// A program that starts processes.
struct Launcher {
    path: PathBuf,
    abi: Abi,
    /// What went wrong when it started some.
    fault: Option<String>,
    /// Whether the GPUs of those worked together, in words; nothing where there are none.
    gpus: Option<String>,
}

impl Together {
    /// Looks for libraries and launchers, and tries the latter; under one of them, whether all its processes are there. `None` of all of
    /// them but the first.
    pub fn look() -> Result<Option<Together>, Failure> {
        // In a pod that others look for, a question about this machine waits for nobody.
        let is_launched = |launch: &Launch| !matches!(launch.launcher, Starter::Rendezvous { .. });
        if Launch::from_environment().ok().flatten().is_some_and(|launch| is_launched(&launch)) {
            let ranks = crate::ranks::join()?;
            meet(&ranks)?;
            let gpus = gpus_together(&ranks)?;
            let found = Together { libraries: installed(), launchers: Vec::new(), ranks: ranks.summary(), gpus };
            return Ok(Some(found).filter(|_| ranks.is_first()));
        }
        let libraries = installed();
        let mut launchers: Vec<Launcher> = Vec::new();
        for path in LAUNCHERS.iter().filter_map(|name| in_path(name)) {
            let Some(abi) = abi_of(&path).filter(|abi| launchers.iter().all(|known| known.abi != *abi)) else {
                continue;
            };
            let tried = match libraries.iter().any(|library| library.abi == abi) {
                true => try_launcher(&path),
                false => Err(format!("its library was not found: install it (Debian: {})", package(abi))),
            };
            let (gpus, fault) = tried.map_or_else(|fault| (None, Some(fault)), |gpus| (gpus, None));
            launchers.push(Launcher { path, abi, fault, gpus });
        }
        Ok(Some(Together { libraries, launchers, ranks: None, gpus: None }))
    }

    /// For people, by name.
    pub fn rows(&self) -> Vec<(String, String)> {
        let with_gpus = |text: String, gpus: &Option<String>| match gpus {
            Some(gpus) => format!("{text}; {gpus}"),
            None => text,
        };
        let text = |ranks: &String| with_gpus(format!("{ranks}: all found each other"), &self.gpus);
        let ranks = self.ranks.iter().map(|ranks| ("ranks".to_string(), text(ranks)));
        let mut rows: Vec<(String, String)> = ranks.collect();
        for Installed { file, version, abi } in &self.libraries {
            rows.push(("MPI".to_string(), format!("{version} ({file}, binary interface of {})", abi.name())));
        }
        if self.libraries.is_empty() {
            let what = "not found; it is not needed for one process (Debian: libopenmpi3 and openmpi-bin, or mpich)";
            rows.push(("MPI".to_string(), what.to_string()));
        }
        for Launcher { path, abi, fault, gpus } in &self.launchers {
            let text = match fault {
                None => with_gpus(format!("{TRIED} processes that {} started found each other", path.display()), gpus),
                Some(fault) => format!("{} ({}): {fault}", path.display(), abi.name()),
            };
            rows.push(("mpirun".to_string(), text));
        }
        if self.launchers.is_empty() && !self.libraries.is_empty() && self.ranks.is_none() {
            rows.push(("mpirun".to_string(), "not found: `srun` can start ranks, too".to_string()));
        }
        rows
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let library =
            |library: &Installed| json!({"file": library.file, "version": library.version, "abi": library.abi.name()});
        let launcher = |launcher: &Launcher| {
            json!({
                "path": launcher.path.to_string_lossy(),
                "abi": launcher.abi.name(),
                "works": launcher.fault.is_none(),
                "fault": launcher.fault,
                "gpus": launcher.gpus,
            })
        };
        json!({
            "libraries": self.libraries.iter().map(library).collect::<Vec<_>>(),
            "launchers": self.launchers.iter().map(launcher).collect::<Vec<_>>(),
            "ranks": self.ranks,
            "gpus": self.gpus,
        })
    }
}

/// What a process of a trial does. The first one says whether their GPUs work together.
pub fn try_out(ranks: &Ranks) -> Result<(), Failure> {
    match ranks.size() {
        TRIED => {
            meet(ranks)?;
            let gpus = gpus_together(ranks)?;
            match gpus.filter(|_| ranks.is_first()) {
                Some(gpus) => Ok(writeln!(crate::say::stdout(), "{GPUS}{gpus}")?),
                None => Ok(()),
            }
        }
        size => Err(Failure::work(anyhow!("{TRIED} processes were started together, and each of them sees {size}"))),
    }
}

/// Whether the GPUs of all ranks work together with NCCL, in words; nothing where no rank has one. All ranks call this.
fn gpus_together(ranks: &Ranks) -> Result<Option<String>, Failure> {
    let Some(world) = ranks.world() else { return Ok(None) };
    let count = cuda::gpus().map_or(0, |gpus| gpus.len());
    let device = match count {
        0 => None,
        count => cuda::Device::open(world.local_rank() % count).ok(),
    };
    let have = ranks.gather(device.is_some()).map_err(Failure::work)?;
    let without = have.iter().position(|has| !has);
    Ok(match (without, &device) {
        _ if !have.contains(&true) => None,
        (None, Some(device)) => {
            // Of no gradients: the GPUs find each other, and each adds a one to those of the others.
            let started = cuda::Reduction::start(world, device, &[], 1, Wire::F32).map_err(Failure::work)?;
            Some(match started {
                Ok(reduction) => format!("their GPUs added up numbers with {}", reduction.library()),
                Err(why) => format!("their GPUs add up through host memory, without NCCL: {why}"),
            })
        }
        (without, _) => {
            let name = ranks.name_of(without.unwrap_or(0));
            Some(format!("their GPUs add up nothing, because {name} has none that can be used"))
        }
    })
}

/// Every process says its number and hears those of all others.
fn meet(ranks: &Ranks) -> Result<(), Failure> {
    let heard = ranks.gather(ranks.rank()).map_err(Failure::work)?;
    match heard.iter().enumerate().all(|(rank, said)| rank == *said) {
        true => Ok(()),
        false => Err(Failure::work(anyhow!("ranks said {heard:?} in place of their numbers"))),
    }
}

/// A program, where the shell would find it.
fn in_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Whose launcher it is, by what it says of itself.
fn abi_of(launcher: &Path) -> Option<Abi> {
    let said = Command::new(launcher).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let says = |names: &[&str]| names.iter().any(|name| text.contains(name));
    match (says(&["Open MPI", "OpenRTE", "PRRTE"]), says(&["HYDRA", "Intel"])) {
        (true, _) => Some(Abi::OpenMpi),
        (false, true) => Some(Abi::Mpich),
        (false, false) => None,
    }
}

fn package(abi: Abi) -> &'static str {
    match abi {
        Abi::OpenMpi => "libopenmpi3",
        Abi::Mpich => "libmpich12",
    }
}

/// Starts two processes that find each other, and waits for them. What they say of their GPUs; or what went wrong, in a line.
fn try_launcher(launcher: &Path) -> Result<Option<String>, String> {
    let program =
        std::env::current_exe().map_err(|error| format!("this program does not know its own place: {error}"))?;
    let mut child = Command::new(launcher)
        .args(["-n", &TRIED.to_string()])
        .arg(program)
        .args(["doctor", "--trial"])
        // Two processes fit on any machine, and are no danger to root.
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .envs([("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("it does not start: {error}"))?;
    let (pipe, told) = (child.stderr.take(), child.stdout.take());
    let said = std::thread::spawn(move || pipe.map(first_line).unwrap_or_default());
    let told = std::thread::spawn(move || told.and_then(of_gpus));
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(told.join().unwrap_or_default()),
            Ok(Some(_)) => {
                let line = said.join().unwrap_or_default();
                return Err(if line.is_empty() { "a trial with two processes failed".to_string() } else { line });
            }
            Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(GLANCE),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("a trial with two processes did not end within {} s", PATIENCE.as_secs()));
            }
        }
    }
}

/// What a trial says of its GPUs; all of it is read, so that nobody waits.
fn of_gpus(pipe: impl Read) -> Option<String> {
    let text = bounded(pipe);
    text.lines().find_map(|line| line.split_once(GPUS)).map(|(_, gpus)| vitreous_pages::format::one_line(gpus.trim()))
}

/// The first part of a text; all of it is read, so that nobody waits.
fn bounded(mut pipe: impl Read) -> String {
    const MOST: u64 = 1 << 16;
    let mut bytes = Vec::new();
    let _ = Read::by_ref(&mut pipe).take(MOST).read_to_end(&mut bytes);
    let _ = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first line with words; all of it is read, so that nobody waits.
fn first_line(pipe: impl Read) -> String {
    let text = bounded(pipe);
    let ours = text.lines().find_map(|line| line.strip_prefix("error: "));
    let any = || text.lines().find(|line| line.contains(char::is_alphabetic));
    vitreous_pages::format::one_line(ours.or_else(any).unwrap_or_default().trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_words_come_first() {
        assert_eq!(first_line(&b"-----\nmpirun has noticed\nerror: no library\n"[..]), "no library");
        assert_eq!(first_line(&b"-----\n\nmpirun has noticed\n"[..]), "mpirun has noticed");
        assert_eq!(first_line(&b""[..]), "");
        assert_eq!(of_gpus(&b"[1,0]<stdout>: gpus: added up\n"[..]), Some("added up".to_string()));
        assert_eq!(of_gpus(&b"nothing\n"[..]), None);
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let library = Installed { file: "libmpi.so.40".into(), version: "Open MPI v4.1.4".into(), abi: Abi::OpenMpi };
        let launcher = |fault: Option<&str>, gpus: Option<&str>| Launcher {
            path: "/bin/mpirun".into(),
            abi: Abi::Mpich,
            fault: fault.map(str::to_string),
            gpus: gpus.map(str::to_string),
        };
        let launchers = vec![launcher(Some("broken"), None), launcher(None, Some("their GPUs added up numbers"))];
        let found = Together { libraries: vec![library], launchers, ranks: None, gpus: None };
        let rows = found.rows();
        assert_eq!(rows[2].1, "2 processes that /bin/mpirun started found each other; their GPUs added up numbers");
        assert_eq!(rows[0].1, "Open MPI v4.1.4 (libmpi.so.40, binary interface of Open MPI)");
        assert_eq!(rows[1], ("mpirun".to_string(), "/bin/mpirun (MPICH): broken".to_string()));
        assert_eq!(found.json()["launchers"][0]["works"], false);
        let none = Together { libraries: Vec::new(), launchers: Vec::new(), ranks: None, gpus: None };
        assert!(none.rows()[0].1.starts_with("not found; it is not needed for one process"));
    }
}
