//! The graph: names, inferred shapes, costs; and mistakes, which are error values that say op, place, shapes and rule.

use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, CrossEntropyOptions, DType, Error, GradientOptions, Graph, Group, Mode,
    Optimizer, Padding, Plan, Precision, Result, Run, Shape, State, StepOptions, Value,
};

const F32: DType = DType::F32;

fn graph() -> Graph {
    Graph::for_training()
}

/// The message of a build that must fail.
fn refusal(build: impl FnOnce(&mut Graph) -> Result<Value>) -> String {
    build(&mut graph()).expect_err("must be refused").to_string()
}

#[test]
fn scopes_name_parameters_and_values() {
    let mut g = graph();
    let x = g.input("x", [2, 5, 8], F32).unwrap();
    let y = g
        .scope("blocks.3", |g| {
            g.scope("attention", |g| {
                g.scope("qkv", |g| {
                    let weight = g.parameter("weight", [24, 8])?;
                    let bias = g.parameter("bias", [24])?;
                    g.linear(x, weight, Some(bias))
                })
            })
        })
        .unwrap();
    assert_eq!(g.parameters()[0].name, "blocks.3.attention.qkv.weight");
    assert_eq!(g.shape_of(y), &Shape::from([2, 5, 24]));
    assert!(g.find("blocks.3.attention.qkv.linear").is_ok());
    // The same op twice in a scope: the second is numbered.
    let first = g.gelu(y).unwrap();
    let second = g.gelu(first).unwrap();
    assert_eq!(g.find("gelu").unwrap(), first);
    assert_eq!(g.find("gelu_2").unwrap(), second);
    g.name("hidden", first).unwrap();
    assert_eq!(g.find("hidden").unwrap(), first);
    let error = g.find("hiden").unwrap_err().to_string();
    assert!(error.contains("no value is called `hiden`") && error.contains("hidden"), "{error}");
}

#[test]
fn parameters_lie_in_one_flat_buffer() {
    let mut g = graph();
    g.parameter("a", [3, 5]).unwrap();
    g.parameter("b", [17]).unwrap();
    g.parameter("c", [1]).unwrap();
    let offsets: Vec<usize> = g.parameters().iter().map(|p| p.offset).collect();
    assert_eq!(offsets, [0, 16, 48]);
    assert_eq!(g.parameter_floats(), 64);
}

#[test]
fn a_mistake_says_op_place_shapes_and_rule() {
    let message = refusal(|g| {
        let x = g.input("x", [2, 5, 8], F32)?;
        g.scope("blocks.3.mlp", |g| {
            let weight = g.parameter("weight", [16, 9])?;
            g.linear(x, weight, None)
        })
    });
    assert_eq!(
        message,
        "linear at `blocks.3.mlp.linear`: x must be [.., in] and the weight [out, in] with the same `in`; \
         got f32[2, 5, 8] and f32[16, 9]"
    );
}

#[test]
fn every_rule_is_checked() {
    let input = |g: &mut Graph, shape: &[usize]| g.input(&format!("x{}", g.nodes().len()), shape, F32);
    let whole = |g: &mut Graph, shape: &[usize]| g.input(&format!("i{}", g.nodes().len()), shape, DType::I32);
    type Case<'a> = (&'a str, Box<dyn Fn(&mut Graph) -> Result<Value> + 'a>);
    let attention = |heads: usize, dim: usize| {
        move |g: &mut Graph| {
            let qkv = input(g, &[2, 4, dim])?;
            g.attention(AttentionInputs::Packed(qkv), &AttentionOptions { heads, ..AttentionOptions::default() })
        }
    };
    let cases: Vec<Case> = vec![
        (
            "trailing axes",
            Box::new(|g| {
                let (a, b) = (input(g, &[2, 3])?, input(g, &[2])?);
                g.add(a, b)
            }),
        ),
        (
            "trailing axes",
            Box::new(|g| {
                let (a, b) = (input(g, &[2, 3])?, input(g, &[3, 3])?);
                g.multiply(a, b)
            }),
        ),
        (
            "must be floats",
            Box::new(|g| {
                let (a, b) = (input(g, &[2, 3])?, whole(g, &[3])?);
                g.add(a, b)
            }),
        ),
        (
            "same k",
            Box::new(|g| {
                let (a, b) = (input(g, &[2, 3, 4])?, input(g, &[2, 3, 4])?);
                g.matmul(a, b, false, false)
            }),
        ),
        (
            "divisible by the patch 5x5",
            Box::new(|g| {
                let x = input(g, &[1, 3, 12, 10])?;
                g.patchify(x, [5, 5])
            }),
        ),
        (
            "vocabulary, dim",
            Box::new(|g| {
                let (t, n) = (input(g, &[3, 4])?, input(g, &[2])?);
                g.embedding(t, n)
            }),
        ),
        (
            "equal but for axis 1",
            Box::new(|g| {
                let (a, b) = (input(g, &[2, 3])?, input(g, &[3, 3])?);
                g.concat(&[a, b], 1)
            }),
        ),
        (
            "no axis 2",
            Box::new(|g| {
                let a = input(g, &[2, 3])?;
                g.concat(&[a], 2)
            }),
        ),
        (
            "must not be empty",
            Box::new(|g| {
                let a = input(g, &[2, 3])?;
                g.slice(a, 1, 2, 2)
            }),
        ),
        (
            "inside axis 1",
            Box::new(|g| {
                let a = input(g, &[2, 3])?;
                g.slice(a, 1, 2, 4)
            }),
        ),
        (
            "each of the 2 axes once",
            Box::new(|g| {
                let a = input(g, &[2, 3])?;
                g.transpose(a, &[1, 1])
            }),
        ),
        (
            "do not fill the shape [4, 2]",
            Box::new(|g| {
                let a = input(g, &[2, 3])?;
                g.reshape(a, [4, 2])
            }),
        ),
        (
            "2 vectors [n]",
            Box::new(|g| {
                let (x, v) = (input(g, &[2, 3])?, input(g, &[2])?);
                g.layer_norm(x, v, v, 1e-6)
            }),
        ),
        (
            "eps must be finite",
            Box::new(|g| {
                let (x, v) = (input(g, &[2, 3])?, input(g, &[3])?);
                g.rms_norm(x, v, f32::NAN)
            }),
        ),
        (
            "at least 0 and under 1",
            Box::new(|g| {
                let x = input(g, &[2, 3])?;
                g.dropout(x, 1.0)
            }),
        ),
        (
            "at least 0 and under 1",
            Box::new(|g| {
                let x = input(g, &[2, 3])?;
                g.stochastic_depth(x, -0.5)
            }),
        ),
        (
            "[.., tokens, n]",
            Box::new(|g| {
                let x = input(g, &[3])?;
                g.mean_tokens(x)
            }),
        ),
        ("the 5 heads must divide dim 8", Box::new(attention(5, 24))),
        ("the 0 heads must divide", Box::new(attention(0, 24))),
        ("[batch, tokens, 3·dim]", Box::new(attention(2, 23))),
        (
            "lengths must be [batch]",
            Box::new(|g| {
                let (qkv, lengths) = (input(g, &[2, 4, 24])?, whole(g, &[3])?);
                let padding = Padding::Lengths(lengths);
                g.attention(AttentionInputs::Packed(qkv), &AttentionOptions { heads: 2, padding, ..Default::default() })
            }),
        ),
        (
            "the bias must be",
            Box::new(|g| {
                let (qkv, bias) = (input(g, &[2, 4, 24])?, input(g, &[1, 3, 4, 4])?);
                g.attention(
                    AttentionInputs::Packed(qkv),
                    &AttentionOptions { heads: 2, bias: Some(bias), ..Default::default() },
                )
            }),
        ),
        (
            "can be asked of the result of an attention",
            Box::new(|g| {
                let x = input(g, &[2])?;
                g.attention_weights(x)
            }),
        ),
        (
            "one per row",
            Box::new(|g| {
                let (x, t) = (input(g, &[2, 3])?, whole(g, &[3])?);
                g.cross_entropy(x, t, CrossEntropyOptions::default())
            }),
        ),
        (
            "of the logits' shape",
            Box::new(|g| {
                let (x, t) = (input(g, &[2, 3])?, input(g, &[2])?);
                g.cross_entropy(x, t, CrossEntropyOptions::default())
            }),
        ),
        (
            "the bias must be [out]",
            Box::new(|g| {
                let (x, w, b) = (input(g, &[2, 3])?, input(g, &[4, 3])?, input(g, &[2, 4])?);
                g.linear(x, w, Some(b))
            }),
        ),
        (
            "2 vectors [n] of f32",
            Box::new(|g| {
                let (x, v) = (input(g, &[2, 3])?, input(g, &[3])?);
                let v = g.cast(v, DType::Bf16)?;
                g.layer_norm(x, v, v, 1e-6)
            }),
        ),
        (
            "too large for any machine",
            Box::new(|g| {
                let x = input(g, &[1, 1, 4])?;
                g.unpatchify(x, [2, 2], [1, usize::MAX, 2, 2])
            }),
        ),
        ("every axis must be at least 1", Box::new(|g| input(g, &[2, 0]))),
        ("too large for any machine", Box::new(|g| input(g, &[usize::MAX, 3]))),
        ("too large for any machine", Box::new(|g| g.parameter("p", [1 << 40, 1 << 40]))),
        ("do not fill the shape", Box::new(|g| g.constant("c", [2, 2], vec![1.0; 3]))),
        (
            "stored as f32 or bf16",
            Box::new(|g| {
                let x = input(g, &[2])?;
                g.cast(x, DType::I32)
            }),
        ),
        (
            "names of values must differ",
            Box::new(|g| {
                g.input("same", [1], F32)?;
                g.input("same", [1], F32)
            }),
        ),
    ];
    for (rule, build) in cases {
        let message = refusal(|g| build(g));
        assert!(message.contains(rule), "expected `{rule}` in: {message}");
    }
}

#[test]
fn a_value_of_another_graph_is_refused() {
    let mut other = graph();
    for index in 0..5 {
        other.input(&format!("x{index}"), [2], F32).unwrap();
    }
    let stranger = other.find("x4").unwrap();
    let mut g = graph();
    for result in
        [g.gelu(stranger), g.add(stranger, stranger), g.linear(stranger, stranger, None), g.cast(stranger, DType::Bf16)]
    {
        assert!(result.unwrap_err().to_string().contains("not a value of this graph"));
    }
    assert!(Plan::for_cpu(&g, &[stranger]).is_err());
}

#[test]
fn a_gradient_that_does_not_exist_is_an_error() {
    let mut g = graph();
    let table = g.parameter("table", [5, 4]).unwrap();
    let unused = g.parameter("unused", [4]).unwrap();
    let numbers = g.input("numbers", [3], DType::I32).unwrap();
    let x = g.embedding(table, numbers).unwrap();
    let targets = g.softmax(x).unwrap();
    let loss = g.cross_entropy(x, targets, CrossEntropyOptions::default()).unwrap();
    let message = |g: &mut Graph, loss: Value, of: Value| {
        g.clone().gradients(loss, &[of], GradientOptions::default()).unwrap_err().to_string()
    };
    // Soft targets that depend on the parameter: the loss would need their gradient too.
    assert!(message(&mut g, loss, table).contains("targets have no gradient"));
    assert!(message(&mut g, loss, unused).contains("`unused`: the loss does not depend on it"));
    assert!(message(&mut g, x, table).contains("must be a single number, it is f32[3, 4]"));
    let classes = g.input("classes", [3], DType::I32).unwrap();
    let hard = g.cross_entropy(x, classes, CrossEntropyOptions::default()).unwrap();
    assert!(message(&mut g, hard, numbers).contains("whole numbers have no gradient"));
    assert!(message(&mut g, hard, classes).contains("targets have no gradient"));
    let stranger = {
        let mut other = g.clone();
        other.scale(x, 2.0).unwrap()
    };
    assert!(message(&mut g, stranger, table).contains("not of this graph"));
    assert!(message(&mut g, hard, stranger).contains("not of this graph"));
    let seed = g.constant("wrong_seed", [4], vec![1.0; 4]).unwrap();
    let error = g.gradients_from(x, seed, &[table], GradientOptions::default()).unwrap_err().to_string();
    assert!(error.contains("the seed must be of the value's shape"), "{error}");
}

#[test]
fn a_training_step_that_trains_nothing_is_refused() {
    let mut g = graph();
    let w = g.parameter("w", [2, 2]).unwrap();
    let x = g.input("x", [3, 2], F32).unwrap();
    let y = g.linear(x, w, None).unwrap();
    let targets = g.input("targets", [3], DType::I32).unwrap();
    let loss = g.cross_entropy(y, targets, CrossEntropyOptions::default()).unwrap();
    let options = |group: &'static dyn Fn(&vitreous_engine::Parameter) -> Option<Group>| StepOptions {
        optimizer: Optimizer::adamw(),
        group,
        clip: None,
        ema: false,
        gradient: GradientOptions::default(),
    };
    let nothing = g.clone().training_step(loss, &options(&|_| None)).unwrap_err().to_string();
    assert!(nothing.contains("no parameter is trained"), "{nothing}");
    let broken = g.training_step(loss, &options(&|_| Some(Group { decay: f64::NAN, rate_factor: 1.0 })));
    assert!(broken.unwrap_err().to_string().contains("`w`"));
}

#[test]
fn data_of_the_wrong_kind_is_refused() {
    let mut g = graph();
    let table = g.parameter("table", [5, 4]).unwrap();
    let numbers = g.input("numbers", [3], DType::I32).unwrap();
    let rows = g.embedding(table, numbers).unwrap();
    let doubled = g.scale(rows, 2.0).unwrap();
    let mut executor = Executor::new(Plan::for_cpu(&g, &[doubled]).unwrap(), 2).unwrap();
    let mut state = State::new(&g).unwrap();
    assert!(executor.input("numbers").unwrap_err().to_string().contains("holds i32[3]"));
    assert!(executor.input_i32("number").unwrap_err().to_string().contains("there are: numbers"));
    let unasked = executor.output(rows).unwrap_err().to_string();
    assert!(unasked.contains("`embedding`; there are: scale"), "{unasked}");
    assert!(executor.number(doubled).is_err());
    for (values, bad) in [([0, 5, 1], 5), ([0, 1, -2], -2)] {
        executor.input_i32("numbers").unwrap().copy_from_slice(&values);
        let error = executor.run(&mut state, Run::default()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("embedding at `embedding`: {bad} at position")) && error.contains("0..5"),
            "{error}"
        );
    }
    executor.input_i32("numbers").unwrap().copy_from_slice(&[4, 0, 1]);
    executor.run(&mut state, Run::default()).unwrap();
    // A state of another graph.
    let mut other = graph();
    other.parameter("else", [7]).unwrap();
    assert!(executor.run(&mut State::new(&other).unwrap(), Run::default()).is_err());
    assert!(state.parameter("tabel").unwrap_err().to_string().contains("there are: table"));
}

#[test]
fn costs_are_counted() {
    let mut g = Graph::new(Mode::Inference, Precision::F32);
    let x = g.input("x", [4, 16, 128], F32).unwrap();
    let weight = g.parameter("weight", [512, 128]).unwrap();
    let bias = g.parameter("bias", [512]).unwrap();
    g.linear(x, weight, Some(bias)).unwrap();
    assert_eq!(g.flops(), 2 * 64 * 128 * 512 + 64 * 512);
    // The planner's fusing changes no cost.
    let y = g.find("add").unwrap();
    assert_eq!(Plan::for_cpu(&g, &[y]).unwrap().flops(), g.flops());
}

#[test]
fn dropout_leaves_no_trace_at_inference() {
    let mut g = Graph::for_inference();
    let x = g.input("x", [4, 3, 8], F32).unwrap();
    assert_eq!(g.dropout(x, 0.5).unwrap(), x);
    assert_eq!(g.stochastic_depth(x, 0.5).unwrap(), x);
    assert!(g.dropout(x, 2.0).is_err(), "a wrong rate is wrong there too");
}

/// A graph of sizes that no machine holds can be built and counted: nothing is allocated.
#[test]
fn building_allocates_no_tensors() {
    let mut g = graph();
    let x = g.input("x", [1, 2048, 12288], F32).unwrap();
    let mut y = x;
    for layer in 0..96 {
        y = g
            .scope(&format!("blocks.{layer}"), |g| {
                let up = g.parameter("up", [49152, 12288])?;
                let down = g.parameter("down", [12288, 49152])?;
                let h = g.linear(y, up, None)?;
                let h = g.gelu(h)?;
                g.linear(h, down, None)
            })
            .unwrap();
    }
    assert_eq!(g.parameters().iter().map(|p| p.shape.elements()).sum::<usize>(), 96 * 2 * 49152 * 12288);
}

/// Memory that no machine has is an error, not an abort.
#[test]
fn too_much_memory_is_refused() {
    let mut g = graph();
    let x = g.input("x", [1 << 44], F32).unwrap();
    let y = g.gelu(x).unwrap();
    let refused = Executor::new(Plan::for_cpu(&g, &[y]).unwrap(), 1).err().unwrap().to_string();
    assert!(refused.contains("refused") && refused.contains("smaller batch"), "{refused}");
    let mut g = graph();
    let values: Vec<Value> = (0..9).map(|i| g.input(&format!("x{i}"), [1 << 59], F32).unwrap()).collect();
    assert!(matches!(Plan::for_cpu(&g, &values), Err(Error::Machine(_))));
    let mut g = graph();
    g.parameter("p", [1 << 46]).unwrap();
    assert!(State::new(&g).is_err());
}

#[test]
fn a_value_can_be_replaced_by_one_that_was_there_before() {
    let mut g = Graph::for_inference();
    let instead = g.input("instead", [2], F32).unwrap();
    let other = g.input("other", [3], F32).unwrap();
    let x = g.input("x", [2], F32).unwrap();
    let doubled = g.add(x, x).unwrap();
    let y = g.multiply(doubled, doubled).unwrap();
    let late = g.scale(x, 3.0).unwrap();
    let refusal = |g: &mut Graph, by: Value| g.replace(doubled, by).expect_err("refused").to_string();
    assert!(refusal(&mut g, other).contains("can only be replaced by the same"));
    assert!(refusal(&mut g, late).contains("must be there before what reads it"));
    g.replace(doubled, instead).unwrap();
    let plan = Plan::for_cpu_with_fixed_weights(&g, &[y]).unwrap();
    assert_eq!(plan.graph().inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["instead"], "x is not needed");
    let no_weights = |_: &vitreous_engine::Parameter| Err::<&[f32], _>(Error::Machine(String::new()));
    let mut executor = Executor::with_weights(plan, 1, no_weights).unwrap();
    executor.input("instead").unwrap().copy_from_slice(&[3.0, -5.0]);
    executor.infer().unwrap();
    assert_eq!(executor.output(y).unwrap(), [9.0, 25.0]);
    // Gradients go to what it was replaced by; there are none for what is not read any more.
    let seed = g.input("seed", [2], F32).unwrap();
    let gradients = g.gradients_from(y, seed, &[x, instead], GradientOptions::default()).unwrap();
    let plan = Plan::for_cpu_with_fixed_weights(&g, &gradients).unwrap();
    let mut executor = Executor::with_weights(plan, 1, no_weights).unwrap();
    executor.input("instead").unwrap().copy_from_slice(&[3.0, -5.0]);
    executor.input("seed").unwrap().copy_from_slice(&[1.0, 2.0]);
    executor.infer().unwrap();
    assert_eq!(executor.output(gradients[0]).unwrap(), [0.0, 0.0]);
    assert_eq!(executor.output(gradients[1]).unwrap(), [6.0, -20.0]);
}
