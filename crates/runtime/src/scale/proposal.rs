//! Which layout is best, and why.

use std::cmp::Ordering;

use super::communication::Cluster;
use super::device::Device;
use super::layout::{Layout, Sharding};
use super::prediction::{Prediction, Step, predict};
use super::workload::Workload;

/// Fewer tokens are not computed together: how fast that is was not measured, and it is slower.
const FEWEST_TOKENS: usize = 2048;
/// A layout that is more complicated is worth it if it takes at most so much of the time.
const WORTH_IT: f64 = 0.9;

/// A proposed layout among others.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The best of each kind: plain data parallelism, sharded moments, all sharded, model parallel.
    pub rows: Vec<Prediction>,
    /// Which of them is proposed; `None` if nothing fits.
    pub chosen: Option<usize>,
    /// Why.
    pub why: String,
}

/// Predicts every layout and proposes one.
pub fn propose(work: &Workload, device: &Device, cluster: &Cluster, step: &Step) -> Proposal {
    let best = |layouts: Vec<Layout>| {
        let predictions = layouts.into_iter().map(|layout| predict(work, device, cluster, step, layout));
        predictions.min_by(order)
    };
    let kinds = [Sharding::None, Sharding::Optimizer, Sharding::All];
    let sharded = kinds.into_iter().filter(|&kind| kind == Sharding::None || cluster.ranks > 1);
    let mut rows: Vec<Prediction> = sharded.filter_map(|kind| best(data_parallel(work, cluster, step, kind))).collect();
    rows.extend(best(model_parallel(work, cluster, step)));
    let chosen = choose(&rows);
    let why = reason(&rows, chosen, device);
    Proposal { rows, chosen, why }
}

/// The fastest that fits comes first; if none does, the smallest.
fn order(a: &Prediction, b: &Prediction) -> Ordering {
    match (a.fits, b.fits) {
        (true, true) => a.seconds().total_cmp(&b.seconds()),
        (false, false) => a.memory().total_cmp(&b.memory()),
        (of_a, of_b) => of_b.cmp(&of_a),
    }
}

/// Samples that a replica can compute together, of so many in a step: parts of them, the largest first.
fn micro_batches(work: &Workload, step: &Step, samples: usize) -> Vec<usize> {
    let parts = (1..=step.batch.min(samples)).rev().filter(|&part| samples.is_multiple_of(part));
    let enough = |&(place, part): &(usize, usize)| place == 0 || part * work.tokens >= FEWEST_TOKENS;
    parts.enumerate().filter(enough).map(|(_, part)| part).collect()
}

fn data_parallel(work: &Workload, cluster: &Cluster, step: &Step, sharding: Sharding) -> Vec<Layout> {
    divided(work, step, (1, 1), cluster.ranks, sharding)
}

/// Layouts that differ in the size of micro-batches and in recomputation. None if there are fewer samples than replicas.
fn divided(
    work: &Workload,
    step: &Step,
    (tensor, pipeline): (usize, usize),
    data: usize,
    sharding: Sharding,
) -> Vec<Layout> {
    if !step.samples.is_multiple_of(data) {
        return Vec::new();
    }
    let samples = step.samples / data;
    let mut layouts = Vec::new();
    for micro_batch in micro_batches(work, step, samples) {
        let micro_batches = samples / micro_batch;
        for recompute in [false, true] {
            layouts.push(Layout { tensor, pipeline, data, sharding, micro_batch, micro_batches, recompute });
        }
    }
    layouts
}

/// Tensor-parallel ranks share a host and divide the heads; stages divide the layers.
fn model_parallel(work: &Workload, cluster: &Cluster, step: &Step) -> Vec<Layout> {
    let within_host = cluster.ranks.min(cluster.ranks_per_host);
    let divides = |number: usize, by: usize| number.is_multiple_of(by);
    let tensors = std::iter::successors(Some(1), |&tensor| Some(tensor * 2))
        .take_while(|&tensor| tensor <= within_host)
        .filter(|&tensor| divides(work.heads, tensor) && divides(work.kv_heads, tensor));
    let mut layouts = Vec::new();
    for tensor in tensors {
        for pipeline in (1..=work.layers).filter(|&pipeline| divides(work.layers, pipeline)) {
            let ranks = tensor * pipeline;
            if ranks == 1 || !divides(cluster.ranks, ranks) {
                continue;
            }
            for sharding in [Sharding::None, Sharding::Optimizer] {
                layouts.extend(divided(work, step, (tensor, pipeline), cluster.ranks / ranks, sharding));
            }
        }
    }
    layouts
}

/// The first that fits and is not clearly slower than a later one. What Vitreous does not do is proposed where nothing else fits.
fn choose(rows: &[Prediction]) -> Option<usize> {
    let mut chosen: Option<usize> = None;
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.fits) {
        let is_better = chosen.map(|other| &rows[other]).is_none_or(|other| {
            let may = row.layout.is_done_here() || !other.layout.is_done_here();
            may && row.seconds() < WORTH_IT * other.seconds()
        });
        if is_better {
            chosen = Some(index);
        }
    }
    chosen
}

fn reason(rows: &[Prediction], chosen: Option<usize>, device: &Device) -> String {
    let gib = |bytes: f64| format!("{:.1} GiB", bytes / (1u64 << 30) as f64);
    let memory = gib(device.memory);
    let done: Vec<&Prediction> = rows.iter().filter(|row| row.layout.is_done_here()).collect();
    let without = match done.iter().map(|row| row.memory()).min_by(f64::total_cmp) {
        None => "there are fewer samples in a step than ranks, or they cannot be divided evenly".to_string(),
        Some(least) => {
            format!("what Vitreous does needs at least {} per rank, which has {memory}", gib(least))
        }
    };
    let Some(row) = chosen.map(|index| &rows[index]) else {
        return format!("{without}; weights, layers and matrices that are divided do not fit either");
    };
    if !row.layout.is_done_here() {
        return format!("{without}. This is on paper: Vitreous does not do it on GPUs");
    }
    let why = format!("it fits ({} of {memory}), and no other that Vitreous does is clearly faster", gib(row.memory()));
    let is_faster =
        |other: &&Prediction| !other.layout.is_done_here() && other.fits && other.seconds() < WORTH_IT * row.seconds();
    match rows.iter().find(is_faster) {
        Some(other) => format!(
            "{why}. On paper {} would be {:.0} % faster",
            other.layout,
            100.0 * (row.seconds() / other.seconds() - 1.0)
        ),
        None => why,
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::StateBytes;
    use super::super::workload::Activations;
    use super::*;

    /// A model of so many parameters in 40 layers, with samples of 2,048 tokens.
    fn work(parameters: f64) -> Workload {
        Workload {
            images: false,
            parameters,
            layers: 40,
            layer_parameters: parameters / 40.0,
            heads: 32,
            kv_heads: 8,
            tokens: 2048,
            width: 4096,
            flops: 6.0 * parameters * 2048.0,
            flops_recomputed: 2.0 * parameters * 2048.0,
            activations: Activations { one: 4e9, each: 4e9 },
            activations_recomputed: Activations { one: 1e9, each: 1e9 },
            activation_number: 2.0,
        }
    }

    fn step(samples: usize, batch: usize) -> Step {
        Step { samples, batch, wire: 4.0, bucket: 25e6, state: StateBytes::BF16 }
    }

    fn proposed(parameters: f64, ranks: usize) -> Proposal {
        let device = Device { flops: 450e12, memory: 150e9, bandwidth: 4.2e12 };
        let cluster = Cluster { ranks, ranks_per_host: 8, host_link: 450e9, link: 50e9, latency: 1e-5 };
        propose(&work(parameters), &device, &cluster, &step(4 * ranks, 4))
    }

    fn layout(proposal: &Proposal) -> Layout {
        proposal.rows[proposal.chosen.expect("one fits")].layout
    }

    #[test]
    fn what_fits_is_not_divided_and_what_does_not_is_sharded() {
        let small = proposed(1e9, 8);
        assert_eq!(layout(&small).sharding, Sharding::None);
        assert!(small.why.starts_with("it fits"), "{}", small.why);
        // 10 billion parameters take 180 GB; without moments 100 GB and an eighth of 80.
        let large = proposed(10e9, 8);
        assert_eq!(layout(&large).sharding, Sharding::Optimizer);
        assert!(large.why.starts_with("what Vitreous does needs at least"), "{}", large.why);
        // 1,260 GB on 64 ranks: 20 GB each and two layers.
        assert_eq!(layout(&proposed(70e9, 64)).sharding, Sharding::All);
    }

    #[test]
    fn layers_are_divided_where_data_parallelism_ends() {
        // 1,260 GB are too many for two ranks.
        let two = proposed(70e9, 2);
        assert_eq!(two.chosen, None);
        assert!(two.why.contains("do not fit either"), "{}", two.why);
        // Of those that do not fit, the smallest is shown.
        let divided = two.rows.last().expect("a row");
        assert_eq!(divided.layout.tensor * divided.layout.pipeline, 2);
        assert!(divided.layout.recompute && divided.layout.micro_batch == 1, "{}", divided.layout);
        let large = work(400e9);
        let device = Device { flops: 450e12, memory: 150e9, bandwidth: 4.2e12 };
        let cluster = Cluster { ranks: 80, ranks_per_host: 8, host_link: 450e9, link: 50e9, latency: 1e-5 };
        // Two gathered layers of 10 billion weights alone are 120 GB.
        let divided = propose(&large, &device, &cluster, &step(320, 1));
        let row = &divided.rows[divided.chosen.expect("one fits")];
        assert!(row.layout.is_model_parallel());
        assert!(divided.why.starts_with("what Vitreous does needs at least"), "{}", divided.why);
    }

    #[test]
    fn fewer_samples_than_ranks_are_no_data_parallelism() {
        let device = Device { flops: 450e12, memory: 150e9, bandwidth: 4.2e12 };
        let cluster = Cluster { ranks: 512, ranks_per_host: 8, host_link: 450e9, link: 50e9, latency: 1e-5 };
        let few = propose(&work(7e9), &device, &cluster, &step(128, 4));
        assert!(few.rows.iter().all(|row| !row.layout.is_done_here()), "{:?}", few.rows);
        let layout = layout(&few);
        assert!(layout.data <= 128 && layout.data * layout.tensor * layout.pipeline == 512);
        assert!(few.why.starts_with("there are fewer samples in a step than ranks"), "{}", few.why);
    }

    #[test]
    fn the_batch_of_all_ranks_is_the_same_for_every_layout() {
        for row in proposed(10e9, 64).rows {
            let Layout { data, micro_batch, micro_batches, tensor, pipeline, .. } = row.layout;
            assert_eq!(data * micro_batch * micro_batches, 64 * 4);
            assert_eq!(data * tensor * pipeline, 64);
        }
    }

    #[test]
    fn micro_batches_do_not_become_too_small() {
        let of = |tokens: usize| micro_batches(&Workload { tokens, ..work(1e9) }, &step(96, 12), 12);
        assert_eq!(of(2048), [12, 6, 4, 3, 2, 1]);
        assert_eq!(of(400), [12, 6]);
        assert_eq!(of(10), [12]);
        // A step with fewer than may be computed together.
        assert_eq!(micro_batches(&work(1e9), &step(96, 12), 5), [5, 1]);
    }
}
