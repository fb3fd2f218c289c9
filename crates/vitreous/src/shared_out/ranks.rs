//! Which of several processes this one is.

use anyhow::anyhow;
use vitreous_engine::collective::Launch;

use crate::failure::Failure;

/// This process among those that share out the same inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub count: usize,
    /// Whether all run at the same time, because one launcher has started them.
    pub together: bool,
    /// Its number on its host, and how many that has, where the launcher says it.
    pub local: [Option<usize>; 2],
}

/// Looks a variable up.
type Lookup<'l> = &'l dyn Fn(&str) -> Option<String>;

impl Ranks {
    /// One that keeps parts, so that it can be resumed.
    pub const ALONE: Ranks = Ranks { rank: 0, count: 1, together: true, local: [None; 2] };

    /// What the environment says; `None` for a process that is alone.
    pub fn from_environment() -> Result<Option<Ranks>, Failure> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        if let Some(found) = Ranks::of(&variable)? {
            return Ok(Some(found).filter(|found| found.count > 1));
        }
        let launch = Launch::from_environment().map_err(Failure::input)?;
        Ok(launch.map(|Launch { rank, size, local_rank, local_size, .. }| Ranks {
            rank,
            count: size,
            together: true,
            local: [local_rank, local_size],
        }))
    }

    /// Sharing out needs only two numbers, which more launchers give than those that training can use: whoever sets `RANK` and
    /// `WORLD_SIZE` and no address, as a job array can, and tasks of `srun` without MPI. `None` for all others.
    fn of(variable: Lookup) -> Result<Option<Ranks>, Failure> {
        let launchers = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MASTER_ADDR"];
        if launchers.iter().any(|name| variable(name).is_some()) {
            return Ok(None);
        }
        for (rank, count, together) in [("RANK", "WORLD_SIZE", false), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", true)] {
            let (Some(of_rank), Some(of_count)) = (variable(rank), variable(count)) else { continue };
            let number = |name: &str, text: &str| {
                let what = || Failure::input(anyhow!("the variable {name} must be a number, and is `{text}`"));
                text.trim().parse::<usize>().map_err(|_| what())
            };
            let local = variable("SLURM_LOCALID").filter(|_| together).and_then(|number| number.trim().parse().ok());
            let (rank_number, count_number) = (number(rank, &of_rank)?, number(count, &of_count)?);
            if count_number > 1 && rank_number >= count_number {
                let what = format!("{rank}={of_rank} and {count}={of_count}");
                return Err(Failure::input(anyhow!("{what}: ranks count from 0 to one less than their number")));
            }
            return Ok(Some(Ranks { rank: rank_number, count: count_number, together, local: [local, None] }));
        }
        Ok(None)
    }

    /// Its number on its host.
    pub fn local_rank(&self) -> usize {
        self.local[0].unwrap_or(0)
    }

    /// Threads for it, if nobody says how many: its share of the host's cores.
    pub fn threads(&self) -> usize {
        let sharers = if Launch::is_bound() { 1 } else { self.local[1].unwrap_or(1) };
        Launch::threads(sharers, vitreous_runtime::threads())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Ranks>, Failure> {
        let lookup =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
        Ranks::of(&lookup)
    }

    #[test]
    fn launchers_and_arrays_are_told_apart() {
        let found = |variables: &[(&str, &str)]| of(variables).expect("variables that make sense");
        let ranks = |rank, count, together, local| Some(Ranks { rank, count, together, local: [local, None] });
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("RANK", "2"), ("WORLD_SIZE", "4")]), ranks(2, 4, false, None));
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_STEP_NUM_TASKS", "6"), ("SLURM_LOCALID", "1")];
        assert_eq!(found(&slurm), ranks(5, 6, true, Some(1)));
        // Those with which training can work, too.
        assert_eq!(found(&[("RANK", "2"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "a")]), None);
        assert_eq!(found(&[&slurm[..], &[("PMIX_RANK", "5")]].concat()), None);
        // A script of Slurm's that has not called `srun`, and a task of an array.
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8"), ("SLURM_ARRAY_TASK_ID", "3")]), None);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        let says = |variables: &[(&str, &str)]| of(variables).expect_err("refused").text();
        assert!(says(&[("RANK", "one"), ("WORLD_SIZE", "2")]).contains("RANK must be a number"));
        assert!(says(&[("RANK", "2"), ("WORLD_SIZE", "2")]).contains("ranks count from 0"));
    }
}
