//! Commands that a launcher (`mpirun`, `srun`) has started several times: each process finds the others, and all end together.

use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use vitreous_engine::collective::{Launch, Launcher, World};
use vitreous_engine::cuda;
use vitreous_train::Ranks;

use crate::failure::Failure;
use crate::say::be_quiet;

/// How long the others wait for rank 0 to fail, too.
const FIRST_HAS_TIME: Duration = Duration::from_secs(1);

/// How long the others may take to begin before this is told.
const OTHERS_BEGIN: Duration = Duration::from_secs(30);

/// The others, once this process has joined them.
static WORLD: OnceLock<Arc<World>> = OnceLock::new();

/// As [`join_with`], of processes that need MPI.
pub fn join() -> Result<Ranks, Failure> {
    join_with(|_| Ok(None))
}

/// Finds the processes that were started with this one. Without a launcher there are none, and nothing is loaded. Only rank 0 prints from
/// now on, but for errors. `gpu` gives that of this process: ranks that have an address in place of MPI need one.
pub fn join_with(gpu: impl FnOnce(&Launch) -> Result<Option<Arc<cuda::Device>>, Failure>) -> Result<Ranks, Failure> {
    let Some(launch) = Launch::from_environment().map_err(Failure::input)? else { return Ok(Ranks::default()) };
    let gpu = match launch.launcher {
        Launcher::Rendezvous { .. } => gpu(&launch)?,
        Launcher::OpenMpi | Launcher::Pmi | Launcher::Pmix => None,
    };
    let fault = |sentence: &str| {
        complain!("error: {sentence}. All ranks end here; what was saved is whole, and --resume goes on from there");
    };
    let (joined, has_joined) = channel::<()>();
    let note = move || {
        if has_joined.recv_timeout(OTHERS_BEGIN) == Err(RecvTimeoutError::Timeout) {
            let seconds = OTHERS_BEGIN.as_secs();
            complain!(
                "note: the other processes have not begun after {seconds} seconds; waiting (do all run the same command?)"
            );
        }
    };
    drop(std::thread::Builder::new().spawn(note));
    let world = World::join_with(&launch, gpu.as_ref(), Box::new(fault)).map_err(Failure::work)?;
    drop(joined);
    if world.rank() > 0 {
        be_quiet();
    }
    Ok(Ranks::of(WORLD.get_or_init(|| Arc::new(world)).clone()))
}

/// Threads for this process, if nobody says how many: the ranks of a machine share its cores, unless their launcher has bound each to
/// its own.
pub fn threads(ranks: &Ranks) -> usize {
    let available = vitreous_runtime::threads();
    ranks.world().map_or(available, |world| Launch::threads(world.core_sharers(), available))
}

/// Ends a command. One that has failed ends the other ranks, too: they would wait for it in vain.
pub fn leave(result: Result<(), Failure>) -> ExitCode {
    let Some(world) = WORLD.get() else {
        return match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.report(),
        };
    };
    match result {
        Ok(()) | Err(Failure::OutputClosed | Failure::Interrupted) => {
            let code = result.map_or_else(Failure::report, |()| ExitCode::SUCCESS);
            // All are here before any ends: a launcher takes the first end that is no success for a failure of all.
            match world.finish() {
                Ok(()) => code,
                Err(error) => Failure::work(error).report(),
            }
        }
        Err(failure) => {
            if world.rank() > 0 {
                // What all ranks fail with, rank 0 says, and ends them.
                std::thread::sleep(FIRST_HAS_TIME);
            }
            let number = i32::from(failure.exit_number());
            let code = match world.rank() {
                0 => failure.report(),
                rank => failure.report_of(&world.name_of(rank)),
            };
            world.abort(number);
            code
        }
    }
}
