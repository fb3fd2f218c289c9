//! NCCL between ranks that were started with an address in place of MPI (`torchrun`, Kubernetes operators): each needs a GPU.

use std::sync::Arc;

use super::{Collective, Launch, Launcher};
use crate::cuda;
use crate::error::{Error, Result};

/// Finds the others of a launch at its address. To be called once, by the thread that makes all further calls.
pub fn open(launch: &Launch, device: Option<&Arc<cuda::Device>>) -> Result<Box<dyn Collective>> {
    match (&launch.launcher, device) {
        (Launcher::Rendezvous { address, port }, Some(device)) => {
            cuda::open_link((launch.rank, launch.size), (address, *port), device)
        }
        _ => Err(Error::Machine(
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are for GPUs, which find each other with NCCL; start processes on CPUs with \
             `mpirun -n N vitreous ..` or `srun --mpi=pmix vitreous ..`, or unset RANK and WORLD_SIZE"
                .to_string(),
        )),
    }
}

/// One rank, which can send bytes to itself alone: to try out the way that they take.
pub fn alone(device: &Arc<cuda::Device>) -> Result<Box<dyn Collective>> {
    cuda::link_alone(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_without_a_gpu_are_sent_to_mpi() {
        let launcher = Launcher::Rendezvous { address: "127.0.0.1".to_string(), port: 1 };
        let launch = Launch { rank: 0, size: 2, local_rank: None, local_size: None, launcher };
        let said = open(&launch, None).map(drop).expect_err("there is no GPU").to_string();
        assert!(said.starts_with("RANK, WORLD_SIZE") && said.contains("mpirun -n N vitreous"), "{said}");
    }
}
