//! Whether a launcher has started this process with others, from the variables that it has set.

use crate::error::{Error, Result};

/// What a launcher says of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its number among all, from 0.
    pub rank: usize,
    /// How many processes there are, at least 2.
    pub size: usize,
    /// Its number among those of its machine, where the launcher says it.
    pub local_rank: Option<usize>,
    /// How many processes its machine has, where the launcher says it.
    pub local_size: Option<usize>,
    /// Who has started it.
    pub launcher: Launcher,
}

/// Who starts processes that belong together, by how they find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpirun` of MPICH and its relatives (Intel MPI, MVAPICH, Cray), or `srun --mpi=pmi2`.
    Pmi,
    /// `srun --mpi=pmix`, or `prun`.
    Pmix,
    /// `torchrun`, Kubernetes operators, and others who set `RANK`, `WORLD_SIZE` and an address to meet at.
    Rendezvous {
        /// The host of rank 0.
        address: String,
        /// A free port on it.
        port: u16,
    },
}

/// Looks a variable up.
type Lookup<'l> = &'l dyn Fn(&str) -> Option<String>;

impl Launch {
    /// What the environment says; `None` for a process that is alone.
    pub fn from_environment() -> Result<Option<Launch>> {
        Launch::of(&|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    fn of(variable: Lookup) -> Result<Option<Launch>> {
        let found = match known(variable)? {
            Some(found) => found,
            None => return Ok(None),
        };
        if found.size > 1 && found.rank >= found.size {
            let what = format!("the launcher says that this is rank {} of {}", found.rank, found.size);
            return Err(Error::Machine(format!("{what}: ranks count from 0; look at the variables that it sets")));
        }
        Ok(Some(found).filter(|launch| launch.size > 1))
    }

    /// Threads for each of so many processes that have the same `available` cores between them.
    pub fn threads(sharers: usize, available: usize) -> usize {
        (available / sharers.max(1)).max(1)
    }

    /// Whether the launcher has bound this process to some of the cores that it may use itself. The limits of a container are those of
    /// both, and bind nobody.
    pub fn is_bound() -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
        let launcher = parent.and_then(cores_of);
        launcher.is_some() && launcher != cores_of("self")
    }
}

/// The cores that a process may use, as the system lists them (`0-3,8`), by its number or `self`.
pub(super) fn cores_of(process: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores.map(|cores| cores.trim().to_string())
}

fn known(variable: Lookup) -> Result<Option<Launch>> {
    let number = |name: &str| number(variable, name);
    let launch = |rank, size, local: [&str; 2], launcher| -> Result<Option<Launch>> {
        let [local_rank, local_size] = local;
        Ok(Some(Launch { rank, size, local_rank: number(local_rank)?, local_size: number(local_size)?, launcher }))
    };
    if let (Some(rank), Some(size)) = (number("OMPI_COMM_WORLD_RANK")?, number("OMPI_COMM_WORLD_SIZE")?) {
        let local = ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"];
        return launch(rank, size, local, Launcher::OpenMpi);
    }
    let slurm = ["SLURM_LOCALID", "none"];
    if let (Some(rank), Some(size)) = (number("PMI_RANK")?, number("PMI_SIZE")?) {
        let local = if variable("MPI_LOCALRANKID").is_some() { ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"] } else { slurm };
        return launch(rank, size, local, Launcher::Pmi);
    }
    // Set by `srun` for each task, and not in the script that calls it.
    let tasks = number("SLURM_STEP_NUM_TASKS")?;
    if let (Some(rank), Some(size)) = (number("PMIX_RANK")?, tasks.or(number("PMIX_SIZE")?)) {
        return launch(rank, size, slurm, Launcher::Pmix);
    }
    if let (Some(rank), Some(size)) = (number("RANK")?, number("WORLD_SIZE")?) {
        return rendezvous(variable, rank, size);
    }
    match (number("SLURM_PROCID")?, tasks) {
        (Some(_), Some(size)) if size > 1 => Err(Error::Machine(format!(
            "srun has started {size} tasks that cannot find each other; start them with `srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` \
             (MPICH); `srun --mpi=list` says what this Slurm has"
        ))),
        _ => Ok(None),
    }
}

fn rendezvous(variable: Lookup, rank: usize, size: usize) -> Result<Option<Launch>> {
    if size < 2 {
        return Ok(None);
    }
    let port = number(variable, "MASTER_PORT")?.and_then(|port| u16::try_from(port).ok());
    let (Some(address), Some(port)) = (variable("MASTER_ADDR"), port) else {
        return Err(Error::Machine(
            "RANK and WORLD_SIZE say that there are other processes, but MASTER_ADDR and MASTER_PORT do not say where: set them to the \
             host of rank 0 and to a free port on it, or unset RANK and WORLD_SIZE"
                .to_string(),
        ));
    };
    Ok(Some(Launch {
        rank,
        size,
        local_rank: number(variable, "LOCAL_RANK")?,
        local_size: number(variable, "LOCAL_WORLD_SIZE")?,
        launcher: Launcher::Rendezvous { address, port: own_port(variable, port) },
    }))
}

/// The port to meet at. `torchrun` listens at `MASTER_PORT` itself, for those who know its protocol, and says so; then it is the next one.
fn own_port(variable: Lookup, port: u16) -> u16 {
    match variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        true => port.checked_add(1).unwrap_or(port - 1),
        false => port,
    }
}

/// A variable that has a number, if it is set.
fn number(variable: Lookup, name: &str) -> Result<Option<usize>> {
    let Some(text) = variable(name) else { return Ok(None) };
    text.trim().parse().map(Some).map_err(|_| {
        Error::Machine(format!("the variable {name} must be a number of processes or of this one, and is `{text}`"))
    })
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    let system = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = system.or_else(|| std::env::var("HOSTNAME").ok()).map(|name| name.trim().to_string());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "this machine".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
        let lookup =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        Launch::of(&lookup)
    }

    fn found(variables: &[(&str, &str)]) -> Launch {
        of(variables).expect("variables that make sense").expect("a launcher")
    }

    #[test]
    fn a_process_alone_stays_alone() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")]), Ok(None));
        assert_eq!(of(&[("RANK", "0"), ("WORLD_SIZE", "1")]), Ok(None));
        // A script of Slurm's, which has not called `srun`.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")]), Ok(None));
    }

    #[test]
    fn every_launcher_is_known_by_its_variables() {
        let open = found(&[
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_RANK", "3"),
        ]);
        let expected =
            Launch { rank: 3, size: 4, local_rank: Some(1), local_size: Some(2), launcher: Launcher::OpenMpi };
        assert_eq!(open, expected);
        let hydra = found(&[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1"), ("MPI_LOCALNRANKS", "2")]);
        assert_eq!((hydra.launcher, hydra.local_rank, hydra.local_size), (Launcher::Pmi, Some(1), Some(2)));
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "6"), ("SLURM_LOCALID", "2")];
        let with = |more: &[(&'static str, &'static str)]| found(&[&slurm[..], more].concat());
        assert_eq!(with(&[("PMIX_RANK", "5")]).launcher, Launcher::Pmix);
        let pmi = with(&[("PMI_RANK", "5"), ("PMI_SIZE", "6")]);
        assert_eq!((pmi.launcher, pmi.local_rank), (Launcher::Pmi, Some(2)));
        let torch = found(&[
            ("RANK", "1"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "0"),
            ("MASTER_ADDR", "a"),
            ("MASTER_PORT", "29500"),
        ]);
        assert_eq!(torch.launcher, Launcher::Rendezvous { address: "a".to_string(), port: 29500 });
        assert_eq!(torch.local_rank, Some(0));
        // An operator leaves the port free; `torchrun` itself listens there.
        for (said, port, expected) in [("False", "29500", 29500), ("True", "29500", 29501), ("True", "65535", 65534)] {
            let common = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")];
            let own = [("MASTER_PORT", port), ("TORCHELASTIC_USE_AGENT_STORE", said)];
            let found = found(&[&common[..], &own].concat());
            assert_eq!(found.launcher, Launcher::Rendezvous { address: "a".to_string(), port: expected });
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_way_out() {
        let says = |variables: &[(&str, &str)]| of(variables).expect_err("refused").to_string();
        assert!(says(&[("PMI_RANK", "one"), ("PMI_SIZE", "2")]).contains("PMI_RANK must be a number"));
        assert!(says(&[("RANK", "1"), ("WORLD_SIZE", "2")]).contains("MASTER_ADDR and MASTER_PORT"));
        assert!(says(&[("PMI_RANK", "2"), ("PMI_SIZE", "2")]).contains("rank 2 of 2"));
        assert!(says(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "2")]).contains("srun --mpi=pmix"));
    }

    #[test]
    fn ranks_share_the_cores_that_they_have_in_common() {
        assert_eq!(Launch::threads(4, 16), 4);
        assert_eq!(Launch::threads(4, 2), 1);
        assert_eq!(Launch::threads(1, 16), 16);
    }
}
