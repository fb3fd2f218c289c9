//! The time of a step and the memory of a rank, for one layout.

use super::communication::{Cluster, Group, exposed};
use super::device::Device;
use super::layout::{Layout, Sharding};
use super::memory::{StateBytes, bytes_per_parameter};
use super::workload::Workload;

/// Bytes per parameter that clipping and AdamW read and write: the gradient twice, weight and two moments there and back.
const BYTES_OF_UPDATE: f64 = 32.0;
/// A weight that ranks get from the one that updated it.
const BYTES_OF_UPDATED: f64 = 4.0;
/// Of three matrix multiplications of a layer, the backward pass has two.
const BACKWARD: f64 = 2.0 / 3.0;
/// The fraction of a device's memory that a run may use: the driver, libraries and kernels need some.
const COMFORTABLE: f64 = 0.97;

/// What every layout has in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Samples of all ranks, until weights are updated.
    pub samples: usize,
    /// The most samples that are computed together.
    pub batch: usize,
    /// Bytes of a number of a gradient on the wire.
    pub wire: f64,
    /// Bytes of gradients that are reduced together.
    pub bucket: f64,
    /// What is kept of a parameter.
    pub state: StateBytes,
}

/// What is predicted of a layout. Times are in seconds of a step, memory in bytes of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The layout.
    pub layout: Layout,
    /// Parameters and what belongs to them.
    pub state: f64,
    /// Activations and temporary values.
    pub activations: f64,
    /// Layers that were gathered.
    pub gathered: f64,
    /// Whether all of that fits into the device.
    pub fits: bool,
    /// Forward and backward passes, with what is computed again.
    pub computing: f64,
    /// Sums over tensor-parallel ranks, and activations that are sent on to the next stage.
    pub in_layers: f64,
    /// Waiting for the pipeline to fill and to drain.
    pub bubble: f64,
    /// Gradients and weights that are sent while there is work.
    pub hidden: f64,
    /// Gradients and weights that are waited for.
    pub exposed: f64,
    /// The update of the weights.
    pub update: f64,
    /// The share of the step in which a rank computes what one rank alone would: not what is computed again, not the update, not waiting.
    pub efficiency: f64,
}

impl Prediction {
    /// Bytes that a rank needs.
    pub fn memory(&self) -> f64 {
        self.state + self.activations + self.gathered
    }

    /// Seconds of a step.
    pub fn seconds(&self) -> f64 {
        self.computing + self.in_layers + self.bubble + self.exposed + self.update
    }
}

/// Seconds of communication of parameters and gradients: hidden behind work, and waited for.
struct Traffic {
    hidden: f64,
    exposed: f64,
}

impl Traffic {
    fn add(&mut self, parts: usize, work: f64, communication: f64) {
        let waited = exposed(parts, work, communication);
        self.exposed += waited;
        self.hidden += (communication - waited).max(0.0);
    }
}

/// Predicts a step.
pub fn predict(work: &Workload, device: &Device, cluster: &Cluster, step: &Step, layout: Layout) -> Prediction {
    let Layout { tensor, pipeline, data, sharding, micro_batch, micro_batches, recompute } = layout;
    // Every layout divides the same samples evenly among all ranks.
    let samples = step.samples as f64 / cluster.ranks as f64;
    let flops = work.flops + if recompute { work.flops_recomputed } else { 0.0 };
    let computing = samples * flops / device.flops;
    let in_layers = micro_batches as f64 * communication_in_layers(work, cluster, &layout);
    // Narayanan et al., section 2.2: (p-1)/m of the time in which a stage works.
    let bubble = (pipeline as f64 - 1.0) / micro_batches as f64 * (computing + in_layers);
    let stage = stage_parameters(work, pipeline) / tensor as f64;
    let traffic = traffic(work, cluster, step, &layout, (stage, computing / micro_batches as f64));
    let updated = if sharding >= Sharding::Optimizer { stage / data as f64 } else { stage };
    let update = updated * BYTES_OF_UPDATE / device.bandwidth;
    let useful = samples * work.flops / device.flops;

    let state = stage * bytes_per_parameter(&step.state, sharding, data);
    let of_batch = if recompute { &work.activations_recomputed } else { &work.activations };
    // One forward, one backward: the first stage holds as many micro-batches as there are stages, of its own layers.
    let held = micro_batches.min(pipeline) as f64 / pipeline as f64;
    let activations = of_batch.of(micro_batch) / tensor as f64 * held;
    // The layer that is computed, and the next one.
    let gathered = match sharding {
        Sharding::All => 2.0 * work.layer_parameters / tensor as f64 * step.state.gathered,
        Sharding::None | Sharding::Optimizer | Sharding::Gradients => 0.0,
    };
    let Traffic { hidden, exposed } = traffic;
    let mut prediction = Prediction {
        layout,
        state,
        activations,
        gathered,
        fits: state + activations + gathered <= COMFORTABLE * device.memory,
        computing,
        in_layers,
        bubble,
        hidden,
        exposed,
        update,
        efficiency: 0.0,
    };
    prediction.efficiency = useful / prediction.seconds();
    prediction
}

/// Parameters of the largest stage. Of several stages, the first has the embedding and the last the head.
fn stage_parameters(work: &Workload, pipeline: usize) -> f64 {
    let outside = (work.parameters - work.layers as f64 * work.layer_parameters).max(0.0);
    match pipeline {
        1 => work.parameters,
        _ => work.layers.div_ceil(pipeline) as f64 * work.layer_parameters + outside / 2.0,
    }
}

/// Seconds in which the ranks of a stage add up, and send on, the activations of one micro-batch.
fn communication_in_layers(work: &Workload, cluster: &Cluster, layout: &Layout) -> f64 {
    let activation = (layout.micro_batch * work.tokens * work.width) as f64 * work.activation_number;
    // Shoeybi et al., section 3: two all-reduces per layer forward, two backward; computing again repeats the first two.
    let sums = if layout.recompute { 6.0 } else { 4.0 };
    let tensor = match layout.tensor {
        1 => 0.0,
        ranks => cluster.all_reduce(activation, Group::of(ranks, cluster.ranks_per_host)),
    };
    let layers = work.layers as f64 / layout.pipeline as f64;
    // Each rank of a stage sends its part (Narayanan et al., section 4.1): activations forward, gradients backward.
    let sent = if layout.pipeline > 1 { 2.0 * cluster.send(activation / layout.tensor as f64) } else { 0.0 };
    layers * sums * tensor + sent
}

/// What replicas send each other in a step, where a rank has so many parameters and computes a micro-batch in so many seconds.
fn traffic(
    work: &Workload,
    cluster: &Cluster,
    step: &Step,
    layout: &Layout,
    (parameters, micro_batch): (f64, f64),
) -> Traffic {
    let mut traffic = Traffic { hidden: 0.0, exposed: 0.0 };
    if layout.data == 1 {
        return traffic;
    }
    // Tensor-parallel ranks share a host, and replicas fill what they leave of it.
    let inside = (cluster.ranks_per_host / layout.tensor).clamp(1, layout.data);
    let group = Group { inside, hosts: layout.data.div_ceil(inside) };
    let (forward, backward) = ((1.0 - BACKWARD) * micro_batch, BACKWARD * micro_batch);
    let gradients = parameters * step.wire;
    // The last micro-batch alone has the sum, which can be sent while it goes on.
    let buckets = (gradients / step.bucket).ceil().max(1.0);
    let in_buckets = |seconds: f64| buckets * seconds;
    match layout.sharding {
        Sharding::None => {
            traffic.add(buckets as usize, backward, in_buckets(cluster.all_reduce(gradients / buckets, group)));
        }
        // ZeRO, section 7.2: the volume of an all-reduce, in two halves; the second follows the update.
        Sharding::Optimizer | Sharding::Gradients => {
            traffic.add(buckets as usize, backward, in_buckets(cluster.reduce_scatter(gradients / buckets, group)));
            traffic.exposed += in_buckets(cluster.all_gather(parameters * BYTES_OF_UPDATED / buckets, group));
        }
        // ZeRO, section 7.2.2: weights are gathered layer by layer, forward and again backward: half as much again.
        Sharding::All => {
            let layers = work.layers.div_ceil(layout.pipeline).max(1);
            let of_layer = 1.0 / layers as f64;
            let gather = layers as f64 * cluster.all_gather(parameters * BYTES_OF_UPDATED * of_layer, group);
            let scatter = layers as f64 * cluster.reduce_scatter(gradients * of_layer, group);
            for _ in 0..layout.micro_batches {
                traffic.add(layers, forward, gather);
                traffic.add(layers, backward, gather + scatter);
            }
        }
    }
    traffic
}

#[cfg(test)]
mod tests {
    use super::super::workload::Activations;
    use super::*;

    const GIGA: f64 = 1e9;

    /// A billion parameters in ten layers; a sample takes 6 TFLOP, forward and backward.
    fn work() -> Workload {
        Workload {
            images: false,
            parameters: GIGA,
            layers: 10,
            layer_parameters: 1e8,
            heads: 16,
            kv_heads: 16,
            tokens: 1000,
            width: 2000,
            flops: 6e12,
            flops_recomputed: 2e12,
            activations: Activations { one: 8e9, each: 8e9 },
            activations_recomputed: Activations { one: 2e9, each: 1e9 },
            activation_number: 2.0,
        }
    }

    const DEVICE: Device = Device { flops: 600e12, memory: 80e9, bandwidth: 3.2e12 };

    fn cluster(ranks: usize) -> Cluster {
        Cluster { ranks, ranks_per_host: 8, host_link: 400e9, link: 50e9, latency: 0.0 }
    }

    /// Eight samples of each of so many ranks, four at a time.
    fn step(ranks: usize) -> Step {
        Step { samples: 8 * ranks, batch: 4, wire: 4.0, bucket: 4e8, state: StateBytes::F32 }
    }

    const DATA: Layout = Layout {
        tensor: 1,
        pipeline: 1,
        data: 8,
        sharding: Sharding::None,
        micro_batch: 4,
        micro_batches: 2,
        recompute: false,
    };

    fn close(number: f64, expected: f64) {
        assert!((number / expected - 1.0).abs() < 1e-9, "{number}, not {expected}");
    }

    #[test]
    fn data_parallelism_by_hand() {
        let found = predict(&work(), &DEVICE, &cluster(8), &step(8), DATA);
        // Eight samples of 6 TFLOP; 16 bytes per parameter; 32 GB of activations.
        close(found.computing, 0.08);
        close(found.memory(), 48e9);
        close(found.update, 0.01);
        // Two times 7/8 of 4 GB at 400 GB/s, in ten buckets, behind two thirds of the second micro-batch.
        close(found.exposed, 0.00175);
        close(found.hidden, 0.0175 - 0.00175);
        close(found.efficiency, 0.08 / 0.09175);
        assert!(found.fits);
        // One rank waits for nobody.
        let one = predict(&work(), &DEVICE, &cluster(1), &step(1), Layout { data: 1, ..DATA });
        close(one.efficiency, 0.08 / 0.09);
    }

    #[test]
    fn sharded_moments_shorten_the_update_and_expose_the_gather() {
        let layout = Layout { sharding: Sharding::Optimizer, ..DATA };
        let found = predict(&work(), &DEVICE, &cluster(8), &step(8), layout);
        close(found.memory(), 32e9 + 9e9);
        close(found.update, 0.00125);
        close(found.exposed, 0.000875 + 0.00875);
    }

    #[test]
    fn sharded_weights_are_gathered_twice_per_micro_batch() {
        let layout = Layout { sharding: Sharding::All, ..DATA };
        let found = predict(&work(), &DEVICE, &cluster(8), &step(8), layout);
        // A part of everything, and two layers of 100 million weights.
        close(found.memory(), 32e9 + 2e9 + 0.8e9);
        // Forward 13.3 ms hide 8.75 ms of gathering but a tenth; backward 26.7 ms twice that.
        close(found.exposed, 2.0 * (0.000875 + 0.00175));
        close(found.hidden + found.exposed, 2.0 * 3.0 * 0.00875);
    }

    #[test]
    fn pipelines_wait_and_tensor_parallel_ranks_add_up() {
        let layout = Layout { tensor: 8, pipeline: 2, data: 2, micro_batch: 1, micro_batches: 128, ..DATA };
        let found = predict(&work(), &DEVICE, &cluster(32), &step(32), layout);
        close(found.computing, 0.08);
        // Of each of 128 micro-batches: five layers of four all-reduces of 4 MB, and an eighth of that sent there and back.
        let activation = 4e6;
        let one = 5.0 * 4.0 * 2.0 * 7.0 / 8.0 * activation / 400e9 + 2.0 * activation / 8.0 / 50e9;
        close(found.in_layers, 128.0 * one);
        close(found.bubble, (0.08 + 128.0 * one) / 128.0);
        // Half of the layers and half of what is outside of them (here nothing), an eighth of that.
        close(found.state, 1e9 / 16.0 * 16.0);
        close(found.activations, 1e9);
    }

    #[test]
    fn recomputation_takes_time_and_saves_memory() {
        let found = predict(&work(), &DEVICE, &cluster(8), &step(8), Layout { recompute: true, ..DATA });
        close(found.computing, 8.0 * 8e12 / 600e12);
        close(found.activations, 5e9);
        assert!(found.efficiency < 0.8);
    }
}
