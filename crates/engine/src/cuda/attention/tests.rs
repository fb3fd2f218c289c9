//! NVRTC compiles the kernels of every kind of attention. What they compute is compared on a GPU, by the harness of `tests/`.

use super::super::chip::Chip;
use super::super::chip::testing::{A100, H200, RTX_4090};
use super::super::compile::testing::{ARCHITECTURES, compile_all};
use super::super::launch::{Argument, Buffer, Building, Launch};
use super::{build, workspace_bytes};
use crate::gradient::GradientOptions;
use crate::graph::{Graph, Mode, Node};
use crate::ops::{AttentionInputs, AttentionOptions, Op, Padding};
use crate::plan::{Plan, Target};
use crate::precision::Precision;
use crate::types::{DType, Shape};

struct TestTarget;

impl Target for TestTarget {
    fn workspace_bytes(&self, graph: &Graph, node: &Node) -> usize {
        workspace_bytes(graph, node)
    }

    fn rounds_operands(&self, _op: &Op, _first: &Shape, _second: &Shape) -> bool {
        true
    }

    fn scratch_bytes(&self, _graph: &Graph, _node: &Node) -> usize {
        0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub batch: usize,
    pub heads: usize,
    /// Query heads per key/value head.
    pub group: usize,
    pub queries: usize,
    pub keys: usize,
    pub head_dim: usize,
    pub packed: bool,
    pub dtype: DType,
    pub causal: bool,
    pub window: Option<usize>,
    pub offsets: bool,
    pub lengths: bool,
    pub mask: bool,
    /// Whether there is a bias for each sample, and for each head.
    pub bias: Option<(bool, bool)>,
    pub dropout: f32,
    pub scale: Option<f32>,
}

pub(super) const PLAIN: Case = Case {
    batch: 3,
    heads: 2,
    group: 1,
    queries: 20,
    keys: 20,
    head_dim: 32,
    packed: false,
    dtype: DType::Bf16,
    causal: false,
    window: None,
    offsets: false,
    lengths: false,
    mask: false,
    bias: None,
    dropout: 0.0,
    scale: None,
};

impl Case {
    /// Attention, optionally its weights, and its gradient.
    pub(super) fn plan(&self, with_weights: bool) -> Plan {
        let precision = if self.dtype == DType::Bf16 { Precision::Bf16 } else { Precision::F32 };
        let mut graph = Graph::new(Mode::Training, precision);
        let dim = self.heads * self.head_dim;
        let mut input = |name: &str, tokens: usize, columns: usize| {
            graph.input(name, [self.batch, tokens, columns], self.dtype).unwrap()
        };
        let mut wanted = Vec::new();
        let inputs = if self.packed {
            wanted.push(input("qkv", self.queries, 3 * dim));
            AttentionInputs::Packed(wanted[0])
        } else {
            let kv_dim = dim / self.group;
            wanted.extend([
                input("q", self.queries, dim),
                input("k", self.keys, kv_dim),
                input("v", self.keys, kv_dim),
            ]);
            AttentionInputs::Separate { q: wanted[0], k: wanted[1], v: wanted[2] }
        };
        let padding = if self.lengths {
            Padding::Lengths(graph.input("lengths", [self.batch], DType::I32).unwrap())
        } else if self.mask {
            Padding::Mask(graph.input("mask", [self.batch, self.keys], DType::I32).unwrap())
        } else {
            Padding::None
        };
        let bias = self.bias.map(|(samples, heads)| {
            let axes =
                [if samples { self.batch } else { 1 }, if heads { self.heads } else { 1 }, self.queries, self.keys];
            graph.input("bias", axes, DType::F32).unwrap()
        });
        wanted.extend(bias);
        let offsets = self.offsets.then(|| graph.input("offsets", [self.batch], DType::I32).unwrap());
        let options = AttentionOptions {
            heads: self.heads,
            kv_heads: Some(self.heads / self.group),
            scale: self.scale,
            causal: self.causal,
            window: self.window,
            offsets,
            padding,
            bias,
            dropout: self.dropout,
        };
        let out = graph.attention(inputs, &options).unwrap();
        let weights = with_weights.then(|| graph.attention_weights(out).unwrap());
        let seed = graph.input("seed", [self.batch, self.queries, dim], graph.type_of(out).dtype).unwrap();
        let gradients = graph.gradients_from(out, seed, &wanted, GradientOptions::default()).unwrap();
        let outputs: Vec<_> = [out].into_iter().chain(weights).chain(gradients).collect();
        Plan::new(&graph, &outputs, &TestTarget).unwrap()
    }

    /// The launches of attention, its weights, and its gradient.
    fn launches(&self, chip: Chip) -> Vec<Launch> {
        let plan = self.plan(true);
        let launches = launches_of(&plan, chip);
        for launch in &launches {
            check_sizes(&plan, launch, chip);
        }
        launches
    }

    fn entries(&self) -> Vec<&'static str> {
        let mut entries: Vec<_> = self.launches(A100).iter().map(|launch| launch.entry).collect();
        entries.sort_unstable();
        entries
    }
}

/// All launches of a plan's attention.
fn launches_of(plan: &Plan, chip: Chip) -> Vec<Launch> {
    let is_attention =
        |node: &Node| matches!(node.op, Op::Attention(_) | Op::AttentionWeights(_) | Op::AttentionGradient(_));
    let indices = (0..plan.graph().nodes().len()).filter(|&index| is_attention(&plan.graph().nodes()[index]));
    indices.flat_map(|index| build(&Building { plan, index }, chip)).collect()
}

fn check_sizes(plan: &Plan, launch: &Launch, chip: Chip) {
    assert!(launch.block.is_multiple_of(32) && launch.block <= 1024, "{} has {} threads", launch.entry, launch.block);
    assert!(launch.grid[0] > 0 && launch.grid[1..] == [1, 1], "{} has the grid {:?}", launch.entry, launch.grid);
    assert!(launch.shared_bytes as usize <= chip.shared_bytes, "{} takes {} bytes", launch.entry, launch.shared_bytes);
    let (_, head) = launch.source.split_once(&format!("{}(", launch.entry)).expect("the kernel is in its text");
    let parameters = head.split_once(')').expect("parameters end").0.split(',').count();
    let offsets = usize::from(launch.source.contains("#define OFFSETS 1\n") && launch.entry != "attention_deltas");
    assert_eq!(parameters + offsets, launch.arguments.len(), "{}", launch.entry);
    for argument in &launch.arguments {
        if let Argument::Address(place) = argument
            && place.buffer == Buffer::Arena
        {
            assert!(place.byte < plan.arena_bytes(), "{} reaches past the arena", launch.entry);
        }
    }
}

fn compile_cases(cases: &[Case]) {
    let launches = cases.iter().flat_map(|case| case.launches(A100));
    compile_all(&launches.map(|launch| launch.source).collect(), &ARCHITECTURES);
}

#[test]
fn warps_that_multiply_together_compile() {
    let case = Case { queries: 197, keys: 197, head_dim: 64, ..PLAIN };
    let cases = [
        Case { packed: true, ..case },
        Case { packed: true, batch: 200, ..case },
        Case { queries: 300, keys: 257, causal: true, lengths: true, ..case },
        Case { keys: 100, ..case },
        Case { keys: 40, lengths: true, ..case },
        Case { queries: 1000, keys: 1370, mask: true, bias: Some((true, true)), scale: Some(-0.5), ..case },
        Case { heads: 4, group: 2, queries: 300, keys: 300, causal: true, offsets: true, window: Some(90), ..case },
    ];
    for case in cases {
        let launches = case.launches(H200);
        let forward: Vec<_> = launches.iter().filter(|launch| launch.entry == "attention_forward").collect();
        assert_eq!(forward.len(), 1, "{case:?}");
        assert!(forward[0].source.contains("wgmma"), "{case:?}");
        let backward: Vec<_> = launches
            .iter()
            .filter(|launch| ["attention_backward_queries", "attention_backward_keys"].contains(&launch.entry))
            .collect();
        assert!(backward.iter().all(|launch| launch.source.contains("wgmma")), "{case:?}");
        assert_eq!(backward.len(), if case.queries.max(case.keys) > 256 { 2 } else { 0 }, "{case:?}");
        compile_all(&forward.iter().chain(&backward).map(|launch| launch.source.clone()).collect(), &["sm_90a"]);
    }
    // Without suitable tensor cores; with unaligned heads; where nothing is gained.
    let others = [
        (case, A100),
        (Case { head_dim: 32, ..case }, H200),
        (Case { queries: 112, ..case }, H200),
        (Case { dropout: 0.1, ..case }, H200),
    ];
    for (case, chip) in others {
        assert!(case.launches(chip).iter().all(|launch| !launch.source.contains("wgmma")), "{case:?}");
    }
}

#[test]
fn the_family_follows_from_storage_and_head_size() {
    let weights = "attention_weights";
    let tensor = ["attention_backward", "attention_forward", weights];
    assert_eq!(PLAIN.entries(), tensor);
    assert_eq!(Case { packed: true, head_dim: 128, ..PLAIN }.entries(), tensor);
    let long = ["attention_backward_keys", "attention_backward_queries", "attention_forward", weights];
    assert_eq!(Case { queries: 300, keys: 300, ..PLAIN }.entries(), long);
    let plain = [
        "attention_backward_keys_f32",
        "attention_backward_queries_f32",
        "attention_deltas",
        "attention_forward_f32",
        weights,
    ];
    for case in [
        Case { dtype: DType::F32, ..PLAIN },
        Case { head_dim: 16, ..PLAIN },
        Case { head_dim: 40, ..PLAIN },
        Case { head_dim: 144, ..PLAIN },
    ] {
        assert_eq!(case.entries(), plain, "{case:?}");
    }
    assert!(Case { bias: Some((false, true)), ..PLAIN }.entries().contains(&"attention_bias_gradient"));
}

#[test]
fn chips_with_less_shared_memory_have_smaller_tiles() {
    let vit = Case { packed: true, queries: 197, keys: 197, head_dim: 64, batch: 64, heads: 12, ..PLAIN };
    let long = Case { queries: 577, keys: 577, head_dim: 128, packed: false, ..vit };
    let plain = Case { dtype: DType::F32, ..vit };
    let cases = [
        vit,
        Case { dropout: 0.1, ..vit },
        Case { head_dim: 32, ..vit },
        Case { queries: 145, keys: 145, ..vit },
        Case { queries: 257, keys: 257, ..vit },
        Case { queries: 128, keys: 121, dropout: 0.1, ..long },
        long,
        plain,
        Case { head_dim: 128, bias: Some((true, true)), ..plain },
        Case { head_dim: 380, ..plain },
    ];
    // `launches` checks how much shared memory each takes.
    let launches: Vec<Launch> = cases.iter().flat_map(|case| case.launches(RTX_4090)).collect();
    assert_ne!(vit.launches(RTX_4090), vit.launches(A100));
    compile_all(&launches.into_iter().map(|launch| launch.source).collect(), &["sm_86", "sm_89"]);
}

#[test]
fn packed_projections_begin_side_by_side() {
    let case = Case { packed: true, ..PLAIN };
    for launch in case.launches(A100).iter().filter(|launch| launch.entry != "attention_deltas") {
        let byte = |index: usize| match launch.arguments[index] {
            Argument::Address(place) => place.byte,
            _ => panic!("a pointer"),
        };
        assert_eq!(byte(1) - byte(0), 2 * case.heads * case.head_dim, "{}", launch.entry);
    }
}

#[test]
fn a_single_query_has_its_own_kernel() {
    for (dtype, head_dim) in [(DType::F32, 8), (DType::F32, 64), (DType::Bf16, 80), (DType::Bf16, 256)] {
        let case = Case { queries: 1, keys: 70, dtype, head_dim, ..PLAIN };
        assert!(case.entries().contains(&"attention_one_query"), "{case:?}");
    }
    assert!(!Case { queries: 1, head_dim: 20, ..PLAIN }.entries().contains(&"attention_one_query"));
    let case = Case { queries: 1, keys: 70, lengths: true, ..PLAIN };
    compile_cases(&[
        case,
        Case { dtype: DType::F32, head_dim: 256, dropout: 0.1, ..case },
        Case { head_dim: 48, lengths: false, mask: true, bias: Some((true, true)), ..case },
    ]);
}

#[test]
fn kernels_on_tensor_cores_compile() {
    compile_cases(&[
        Case { packed: true, queries: 197, keys: 197, head_dim: 64, ..PLAIN },
        Case { packed: true, queries: 17, keys: 17, dropout: 0.1, ..PLAIN },
        Case { queries: 1, keys: 70, lengths: true, causal: true, head_dim: 128, ..PLAIN },
        Case { queries: 33, keys: 150, mask: true, dropout: 0.2, bias: Some((true, false)), head_dim: 80, ..PLAIN },
        Case { causal: true, head_dim: 48, scale: Some(-0.5), ..PLAIN },
        Case { packed: true, queries: 256, keys: 256, head_dim: 64, dropout: 0.1, ..PLAIN },
        Case { packed: true, queries: 300, keys: 300, causal: true, head_dim: 64, ..PLAIN },
        Case { queries: 197, keys: 300, lengths: true, dropout: 0.1, bias: Some((true, true)), head_dim: 96, ..PLAIN },
    ]);
}

#[test]
fn kernels_without_tensor_cores_compile() {
    let case = Case { dtype: DType::F32, ..PLAIN };
    compile_cases(&[
        Case { packed: true, queries: 197, keys: 197, head_dim: 64, ..case },
        Case { queries: 33, keys: 150, lengths: true, dropout: 0.2, bias: Some((true, true)), head_dim: 5, ..case },
        Case { queries: 150, keys: 33, mask: true, causal: true, head_dim: 256, ..case },
        Case { head_dim: 600, ..case },
        Case { dtype: DType::Bf16, head_dim: 24, dropout: 0.2, bias: Some((false, false)), ..case },
    ]);
}

/// Every kernel with groups of heads, windows and offsets, separately and combined.
#[test]
fn groups_windows_and_offsets_compile() {
    let grouped = Case { group: 2, heads: 4, causal: true, queries: 300, keys: 300, head_dim: 64, ..PLAIN };
    let window = Case { window: Some(30), queries: 150, keys: 150, head_dim: 64, ..PLAIN };
    let offsets = Case { offsets: true, causal: true, queries: 20, keys: 300, ..PLAIN };
    let all = Case { group: 2, heads: 4, window: Some(70), head_dim: 64, ..offsets };
    compile_cases(&[
        grouped,
        Case { mask: true, bias: Some((true, true)), head_dim: 80, ..window },
        Case { batch: 70, heads: 4, queries: 16, keys: 64, dropout: 0.1, ..offsets },
        Case { queries: 1, lengths: true, ..all },
        Case { dtype: DType::F32, head_dim: 24, bias: Some((false, true)), ..all },
    ]);
    // Hopper's warpgroups.
    for case in [Case { queries: 300, keys: 300, ..window }, Case { queries: 200, keys: 2000, lengths: true, ..all }] {
        let forward: Vec<_> =
            case.launches(H200).into_iter().filter(|launch| launch.entry == "attention_forward").collect();
        assert!(forward[0].source.contains("wgmma"), "{case:?}");
        compile_all(&forward.into_iter().map(|launch| launch.source).collect(), &["sm_90a"]);
    }
}

/// Heads that share keys: blocks that own keys belong to key/value heads, and sum over their group.
#[test]
fn groups_have_a_block_for_each_key_value_head() {
    let of = |case: Case, entry: &str| {
        let launches = case.launches(A100);
        launches.iter().find(|launch| launch.entry == entry).unwrap_or_else(|| panic!("{entry}")).grid[0]
    };
    let case = Case { heads: 6, group: 3, queries: 300, keys: 300, ..PLAIN };
    let single = Case { group: 1, ..case };
    assert_eq!(3 * of(case, "attention_backward_keys"), of(single, "attention_backward_keys"));
    assert_eq!(of(case, "attention_backward_queries"), of(single, "attention_backward_queries"));
    let [case, single] = [case, single].map(|case| Case { dtype: DType::F32, ..case });
    assert_eq!(3 * of(case, "attention_backward_keys_f32"), of(single, "attention_backward_keys_f32"));
    assert_eq!(of(case, "attention_forward_f32"), of(single, "attention_forward_f32"));
}
