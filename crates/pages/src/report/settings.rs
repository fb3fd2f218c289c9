//! The recipe, the machine and the time.

use crate::escape;
use vitreous_train::recipe::{Difference, shipped};
use vitreous_train::{Fault, Recipe, RunRecord, Session};

use crate::format;

/// What differs from the closest built-in recipe, if all of it is known; then every key.
pub fn recipe(run: &RunRecord) -> String {
    let mut html = String::new();
    if let Some(fault) = run.fault_of("recipe.toml") {
        let fault = escape(&fault.to_string());
        html.push_str(&format!("<p class=\"note warn\">{fault} So it is not compared with the built-in recipes.</p>"));
    } else if let Some((name, differences)) = run.recipe.as_ref().ok().and_then(nearest) {
        html.push_str(&match differences.is_empty() {
            true => format!("<p>The recipe <code>{name}</code>, unchanged.</p>"),
            false => {
                let table = table(name, &differences);
                format!("<p>Closest to the built-in recipe <code>{name}</code>, from which it differs in:</p>{table}")
            }
        });
    }
    html.push_str(&format!(
        "<details><summary>Every key, as it was run</summary><pre>{}</pre></details>",
        escape(&run.recipe_text)
    ));
    html
}

/// The built-in recipe that differs in the fewest keys, and those keys. What follows from the data does not count.
fn nearest(recipe: &Recipe) -> Option<(&'static str, Vec<Difference>)> {
    let of = |name: &'static str, shipped: Recipe| {
        let mut differences = recipe.differences(&shipped);
        differences.retain(|difference| difference.key != "model.classes");
        (name, differences)
    };
    let all = shipped().iter().filter_map(|shipped| Some(of(shipped.name, shipped.read(&[]).ok()?)));
    all.min_by_key(|(_, differences)| differences.len())
}

fn table(name: &str, differences: &[Difference]) -> String {
    let value = |value: &Option<String>| match value {
        Some(value) => format!("<code>{}</code>", escape(value)),
        None => "none".to_string(),
    };
    let row = |difference: &Difference| {
        format!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            escape(&difference.key),
            value(&difference.this),
            value(&difference.other)
        )
    };
    let rows: String = differences.iter().map(row).collect();
    format!("<div class=\"scroll\"><table><tr><th>key</th><th>this run</th><th>{name}</th></tr>{rows}</table></div>")
}

/// Where, when and for how long it was trained.
pub fn machine(run: &RunRecord) -> String {
    let Some(last) = run.sessions.last() else {
        let why = run.fault_of("machine.json").map_or("Nothing has been recorded yet.".to_string(), Fault::to_string);
        return format!("<p>{}</p>", escape(&why));
    };
    let mut html = facts(last, run);
    if run.sessions.len() > 1 {
        html.push_str(&format!("<p>It was trained in {} sessions:</p>", run.sessions.len()));
        html.push_str("<div class=\"scroll\"><table><tr><th>started</th><th class=\"number\">from step</th><th class=\"number\">to step</th><th class=\"number\">time</th><th>device</th></tr>");
        for session in &run.sessions {
            html.push_str(&format!(
                "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
                escape(&session.started),
                session.first_step,
                session.step,
                format::seconds(session.seconds),
                escape(session.gpu.as_ref().unwrap_or(&session.cpu))
            ));
        }
        html.push_str("</table></div>");
    }
    html
}

fn facts(session: &Session, run: &RunRecord) -> String {
    let memory = session.memory.map_or("unknown".to_string(), |bytes| format::bytes(bytes as usize));
    let cores = format::count(session.cores, "core", "cores");
    let mut facts = vec![
        ("Training time", format::seconds(run.seconds())),
        ("Started", run.sessions[0].started.replace('T', " ").replace('Z', " UTC")),
    ];
    match &session.gpu {
        // Beside a GPU, the threads of the CPU matter little.
        Some(gpu) => facts
            .extend([("GPU", gpu.clone()), ("CPU", format!("{}, {cores}, {}", session.cpu, session.instruction_set))]),
        None => facts.extend([
            ("CPU", session.cpu.clone()),
            ("Threads", format!("{} of {cores}", session.threads)),
            ("Instruction set", session.instruction_set.clone()),
        ]),
    }
    facts.extend([
        ("Precision", session.precision.clone()),
        ("Memory", memory),
        ("System", session.system.clone()),
        ("Vitreous", session.version.clone()),
        ("Command", session.command.join(" ")),
    ]);
    let fact = |(name, value): (&str, String)| format!("<dt>{name}</dt><dd>{}</dd>", escape(&value));
    format!("<dl class=\"facts\">{}</dl>", facts.into_iter().map(fact).collect::<String>())
}
