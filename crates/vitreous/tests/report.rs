//! The report of a run, as a user gets it: after training, while it goes on, of what is broken, and of several runs.

mod common;

use std::path::Path;
use std::time::Duration;

use common::training::{TINY, metrics, pictures, start, train_tiny};
use common::translator::translator;
use common::{Outcome, vitreous};
use serde_json::{Value, json};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn report(run: &Path) -> String {
    report_with_notes(run, &[])
}

/// Panics unless the page is written, and these notes, and no others, are said on stderr and on the page.
fn report_with_notes(run: &Path, notes: &[&str]) -> String {
    let outcome = vitreous(&["report", text(run)]).succeeded();
    assert_eq!(outcome.stdout, format!("{}\n", run.join("report.html").display()));
    let page = read(&run.join("report.html"));
    let said: Vec<&str> = outcome.stderr.lines().filter(|line| line.starts_with("note: ")).collect();
    assert_eq!(said.len(), notes.len(), "{}", outcome.stderr);
    for (line, note) in said.iter().zip(notes) {
        assert!(line.starts_with(&format!("note: {}: {note}", text(run))), "{line} does not say {note}");
        assert!(page.contains(&format!("<li class=\"note warn\">{note}")), "{note} is not in {}", lead(&page));
    }
    page
}

/// What stands before the first section.
fn lead(page: &str) -> &str {
    page.split("<main>").nth(1).and_then(|rest| rest.split("<section").next()).expect("a lead")
}

/// Panics unless the page has all of these sections, in this order, and each has something in it.
fn has_sections(page: &str, ids: &[&str]) {
    let found: Vec<&str> =
        page.split("<section id=\"").skip(1).map(|rest| rest.split('"').next().unwrap_or_default()).collect();
    assert_eq!(found, ids);
    for section in page.split("<section id=\"").skip(1) {
        let body = section.split("</h2>").nth(1).and_then(|rest| rest.split("</section>").next()).unwrap_or_default();
        assert!(body.trim().len() > 20, "{section}");
    }
}

/// A section's HTML.
fn section<'p>(page: &'p str, id: &str) -> &'p str {
    let start = page.find(&format!("<section id=\"{id}\"")).unwrap_or_else(|| panic!("no {id} in {page}"));
    page[start..].split("</section>").next().unwrap_or_default()
}

const WHOLE: [&str; 9] =
    ["curves", "confusion", "classes", "calibration", "mistakes", "attention", "gradients", "recipe", "machine"];

#[test]
fn a_run_leaves_a_report_with_the_numbers_of_its_metrics() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    train_tiny(&run, &["train.batch=500"]).succeeded();
    let page = read(&run.join("report.html"));
    has_sections(&page, &WHOLE);
    assert!(page.len() < 1 << 20, "{}", page.len());
    assert!(page.contains("<strong>Finished</strong> after 40 steps, 2 epochs."));
    let lines = metrics(&run);
    let last = lines.iter().rfind(|line| line.get("val_top1").is_some()).expect("a test");
    let top1 = last["val_top1"].as_f64().expect("a share");
    assert!(page.contains(&format!(">{:.2} %</span>", 100.0 * top1)), "{top1}");
    assert!(page.contains(&format!(">{:.3}</span>", last["val_loss"].as_f64().expect("a loss"))));
    // With its confidence interval: 2,000 validation images.
    let interval = &vitreous(&["report", text(&run), "--json"]).succeeded().json_lines()[0]["val_top1_interval"];
    let [low, high] = [0, 1].map(|end| interval[end].as_f64().expect("an end"));
    assert!(low < top1 && top1 < high && high - low < 0.045, "{low} to {high} around {top1}");
    assert!(page.contains(&format!("95 % interval {:.2} to {:.2} %", 100.0 * low, 100.0 * high)));
    // Gradients at each epoch's end, without having been asked for.
    let gradients: Vec<&Value> = lines.iter().filter(|line| line.get("gradient_norms").is_some()).collect();
    assert_eq!(gradients.iter().map(|line| line["step"].as_u64()).collect::<Vec<_>>(), [Some(20), Some(40)]);
    assert!(section(&page, "gradients").contains("layer 1, epoch 2: "));

    // What the last test found is what `eval` finds.
    let kept: Value = serde_json::from_str(&read(&run.join("evaluation.json"))).expect("JSON");
    let again = vitreous(&["eval", text(&run), "--json"]).succeeded().json_lines().remove(0);
    for key in ["samples", "top1", "top5", "confusion", "most_confused", "classes", "macro_f1", "undecided"] {
        assert_eq!(kept[key], again[key], "{key}");
    }
    assert_eq!((&kept["step"], &kept["top1"]), (&json!(40), &last["val_top1"]));
    // So is what the page shows of it.
    let confusion = section(&page, "confusion");
    for (row, label) in
        kept["confusion"].as_array().expect("rows").iter().zip(kept["classes"].as_array().expect("classes"))
    {
        let (row, label) = (row.as_array().expect("a row"), label["name"].as_str().expect("a name"));
        let all: u64 = row.iter().filter_map(Value::as_u64).sum();
        for (count, answer) in row.iter().zip(kept["classes"].as_array().expect("classes")) {
            let answer = answer["name"].as_str().expect("a name");
            let note = format!("<title>{label} predicted as {answer}: {count} of {all}</title>");
            assert!(*count == 0 || confusion.contains(&note), "{note}");
        }
    }
    // The most confident mistakes, with their images.
    let mistakes = kept["mistakes"].as_array().expect("mistakes");
    assert_eq!(mistakes.len(), 24);
    let sure: Vec<f64> = mistakes.iter().filter_map(|mistake| mistake["confidence"].as_f64()).collect();
    assert!(sure.is_sorted_by(|a, b| a >= b), "{sure:?}");
    assert!(mistakes.iter().all(|mistake| mistake["label"] != mistake["answer"]));
    let shown = section(&page, "mistakes");
    assert_eq!(shown.matches("src=\"data:image/png;base64,").count(), 24);
    assert!(mistakes.iter().all(|mistake| shown.contains(mistake["name"].as_str().expect("a name"))));
    // Three pictures of each of six images.
    assert_eq!(section(&page, "attention").matches("src=\"data:image/png;base64,").count(), 18);
    assert!(
        section(&page, "recipe").contains("recipe <code>small</code>")
            && section(&page, "recipe").contains("<code>model.dim</code>")
    );

    let machine: Value = serde_json::from_str(&read(&run.join("machine.json"))).expect("JSON");
    let sitting = &machine["sittings"][0];
    assert_eq!((&sitting["step"], &sitting["steps"], &sitting["first_step"]), (&json!(40), &json!(40), &json!(0)));
    for key in ["cpu", "system", "instruction_set"] {
        let value = sitting[key].as_str().expect(key);
        assert!(section(&page, "machine").contains(value), "{value}");
    }
    // Once more, from the command: the same page but for what takes time.
    has_sections(&report(&run), &WHOLE);
    let numbers = vitreous(&["report", text(&run), "--json"]).succeeded().json_lines().remove(0);
    assert_eq!((&numbers["val_top1"], &numbers["val_loss"]), (&last["val_top1"], &last["val_loss"]));
    assert_eq!((&numbers["state"], &numbers["step"], &numbers["steps"]), (&json!("finished"), &json!(40), &json!(40)));
}

#[test]
fn a_run_on_a_gpu_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    train_tiny(&run, &["train.batch=500", "train.epochs=1", "--device", "cpu", "--threads", "2"]).succeeded();
    let page = report(&run);
    assert!(section(&page, "machine").contains("<dt>Threads</dt><dd>2 of "), "{}", section(&page, "machine"));
    // As a GPU would have written it, taken up from what the processor began.
    let file = run.join("machine.json");
    let mut machine: Value = serde_json::from_str(&read(&file)).expect("JSON");
    assert_eq!(machine["sittings"][0].get("gpu"), None);
    let mut second = machine["sittings"][0].clone();
    second["gpu"] = json!("NVIDIA <H200>");
    machine["sittings"].as_array_mut().expect("sittings").push(second);
    std::fs::write(&file, machine.to_string()).expect("written");
    let page = report(&run);
    let machine = section(&page, "machine");
    assert!(machine.contains("<dt>GPU</dt><dd>NVIDIA &lt;H200&gt;</dd>"), "{machine}");
    assert!(!machine.contains("<dt>Threads</dt>") && machine.contains("<td>NVIDIA &lt;H200&gt;</td>"), "{machine}");
}

#[cfg(unix)]
#[test]
fn a_run_that_goes_on_and_one_that_was_killed_are_told_apart() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let words =
        [&["train", "small", "--out", text(&run)], &TINY[..], &["train.epochs=1000", "train.batch=1000"]].concat();
    let mut child = start(&words);
    // It is there after an epoch, and again after another.
    let epoch_of =
        |page: &str| -> Option<u64> { page.split("Written after epoch ").nth(1)?.split(' ').next()?.parse().ok() };
    let (mut seen, mut first) = (String::new(), None);
    while first.is_none() || epoch_of(&seen) <= first {
        std::thread::sleep(Duration::from_millis(1));
        assert!(child.try_wait().expect("a child").is_none(), "it ended too soon: {seen}");
        seen = std::fs::read_to_string(run.join("report.html")).unwrap_or_default();
        assert!(seen.is_empty() || seen.ends_with("</html>\n"), "half a page: {seen}");
        first = first.or(epoch_of(&seen));
    }
    assert!(seen.contains("<strong>Running.</strong>"));
    let elsewhere = directory.path().join("now.html");
    vitreous(&["report", text(&run), "--out", text(&elsewhere)]).succeeded();
    assert!(read(&elsewhere).contains("<strong>Running.</strong>"));
    child.kill().expect("killed");
    child.wait().expect("ends");
    let page = report(&run);
    assert!(page.contains("<strong>Stopped</strong> at step "), "{}", &page[..4000]);
    assert!(page.contains(&format!("vitreous train --resume {}", text(&run))));
    // Who asked has not taken the run away.
    let child = start(&["train", "--resume", text(&run)]);
    while !read(&run.join("machine.json")).contains("--resume") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut child = child;
    child.kill().expect("killed");
    child.wait().expect("ends");
    let machine: Value = serde_json::from_str(&read(&run.join("machine.json"))).expect("JSON");
    assert_eq!(machine["sittings"].as_array().map(Vec::len), Some(2));
    assert!(report(&run).contains("It was trained in 2 sessions"));
}

#[test]
fn what_is_missing_or_damaged_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    train_tiny(&run, &["train.batch=1000", "train.epochs=1"]).succeeded();
    // Lines that are torn, of no use, or no text.
    let mut lines = std::fs::read(run.join("metrics.jsonl")).expect("metrics");
    lines.extend(b"{\"step\": 3, \"lo\n\xff\xfe\n[1]\n{\"step\":9,\"ep");
    std::fs::write(run.join("metrics.jsonl"), lines).expect("written");
    std::fs::write(run.join("machine.json"), "{").expect("written");
    let page = report_with_notes(&run, &["machine.json is damaged", "metrics.jsonl has 4 lines that are damaged"]);
    has_sections(&page, &WHOLE);
    assert!(section(&page, "machine").contains("machine.json is damaged"));
    assert!(page.contains("after 10 steps, 1 epoch."), "{}", lead(&page));
    // A number that no clock can show.
    let absurd = "{\"step\":10,\"epoch\":1.0,\"val_loss\":1.0,\"val_top1\":0.5,\"seconds\":1e300}\n";
    let metrics = std::fs::read(run.join("metrics.jsonl")).expect("metrics");
    std::fs::write(run.join("metrics.jsonl"), [absurd.as_bytes(), &metrics].concat()).expect("written");
    report_with_notes(&run, &["machine.json is damaged", "metrics.jsonl has 4 lines that are damaged"]);
    std::fs::write(run.join("metrics.jsonl"), metrics).expect("written");
    std::fs::write(run.join("evaluation.json"), "{\"classes\": []}").expect("written");
    let notes = ["evaluation.json is damaged", "machine.json is damaged", "metrics.jsonl has 4 lines"];
    let page = report_with_notes(&run, &notes);
    assert!(section(&page, "validation").contains("evaluation.json is damaged"));

    // An older version wrote neither of them.
    let file = |name: &str| run.join(name);
    std::fs::remove_file(file("evaluation.json")).expect("removed");
    std::fs::remove_file(file("machine.json")).expect("removed");
    let without = ["curves", "validation", "attention", "gradients", "recipe", "machine"];
    const MISSING: &str = "is missing (it was removed, or a version made the run that did not keep it).";
    let missing = ["evaluation.json", "machine.json"].map(|name| format!("{name} {MISSING}"));
    let page = report_with_notes(&run, &["metrics.jsonl has 4 lines", &missing[0], &missing[1]]);
    has_sections(&page, &without);
    assert!(section(&page, "validation").contains(&missing[0]) && section(&page, "machine").contains(&missing[1]));
    assert!(page.contains("<strong>Finished</strong> after 10 steps"));
    // Nothing but a recipe, and one that cannot be understood.
    std::fs::remove_file(file("metrics.jsonl")).expect("removed");
    let page = report_with_notes(&run, &["metrics.jsonl is missing.", &missing[1]]);
    assert!(section(&page, "curves").contains("metrics.jsonl is missing"), "{}", section(&page, "curves"));
    std::fs::remove_file(file("report.html")).expect("removed");
    for name in ["model", "checkpoints"] {
        std::fs::remove_dir_all(file(name)).expect("removed");
    }
    let page = report(&run);
    has_sections(&page, &without);
    assert!(page.contains("Nothing has been logged yet") && page.contains("There is no model yet"));
    std::fs::write(file("recipe.toml"), "[nonsense]\na = \"<b>\"\n").expect("written");
    let page = report_with_notes(&run, &["recipe.toml cannot be understood"]);
    assert!(!page.contains("<b>"), "{page}");
}

#[test]
fn a_cut_run_is_told_by_what_is_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    train_tiny(&run, &["train.batch=1000", "loss.label_smoothing=0.2"]).succeeded();
    let file = |name: &str| run.join(name);
    let whole = read(&file("metrics.jsonl"));
    let last = metrics(&run).pop().expect("a line");
    let accuracy = format!(">{:.2} %</span>", 100.0 * last["val_top1"].as_f64().expect("a test"));
    assert!(section(&report(&run), "recipe").contains("<code>0.2</code>"));

    // The last line, which is that of the last test, is cut: what the test found is still known.
    std::fs::write(file("metrics.jsonl"), &whole[..whole.len() - 9]).expect("cut");
    let page = report_with_notes(&run, &["metrics.jsonl has one line that is damaged"]);
    assert!(lead(&page).contains(&accuracy) && lead(&page).contains("after 20 steps, 2 epochs."), "{}", lead(&page));
    let numbers = vitreous(&["report", text(&run), "--json"]).succeeded().json_lines().remove(0);
    assert_eq!((&numbers["val_top1"], &numbers["epoch"]), (&last["val_top1"], &json!(2.0)));
    for content in [Some(""), None] {
        let what = match content {
            Some(content) => std::fs::write(file("metrics.jsonl"), content).map(|()| "metrics.jsonl is empty."),
            None => std::fs::remove_file(file("metrics.jsonl")).map(|()| "metrics.jsonl is missing."),
        };
        let page = report_with_notes(&run, &[what.expect("changed")]);
        assert!(lead(&page).contains(&accuracy) && lead(&page).contains("20 steps, 2 epochs."), "{}", lead(&page));
        assert!(!page.contains("NaN") && !page.contains("Nothing has been logged yet"), "{page}");
    }

    std::fs::remove_dir_all(file("model")).expect("removed");
    let page = report_with_notes(&run, &["metrics.jsonl is missing."]);
    assert!(section(&page, "attention").contains("model/ is missing"));
    // Of a recipe that is not wholly there, no difference is claimed.
    let recipe = read(&file("recipe.toml")).replace("label_smoothing = 0.2\n", "");
    for (text, note) in [
        (&*recipe, "recipe.toml lacks the key `loss.label_smoothing`"),
        ("\n", "recipe.toml cannot be understood: it is empty"),
    ] {
        std::fs::write(file("recipe.toml"), text).expect("written");
        let page = report_with_notes(&run, &[note, "metrics.jsonl is missing."]);
        let shown = section(&page, "recipe");
        assert!(shown.contains(note) && !shown.contains("Closest") && !shown.contains("<td>"), "{shown}");
    }
}

#[test]
fn names_of_classes_and_files_cannot_leave_their_place_and_lost_data_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let (run, photos) = (directory.path().join("run"), directory.path().join("photos"));
    pictures(&photos);
    let hostile = "<b>&\"'";
    for part in ["train", "val"] {
        std::fs::rename(photos.join(part).join("red"), photos.join(part).join(hostile)).expect("renamed");
        std::fs::rename(photos.join(part).join("green"), photos.join(part).join("<script>alert(1)")).expect("renamed");
    }
    let words = ["train", "small", "--out", text(&run), "--data", text(&photos), "train.batch=4", "train.epochs=1"];
    // Hardly learned, so that there are mistakes.
    vitreous(&[&words, &TINY[..6], &["optimizer.lr=1e-9"]].concat()).succeeded();
    let page = read(&run.join("report.html"));
    has_sections(&page, &WHOLE);
    assert!(page.contains("&lt;b&gt;&amp;&quot;&#39;") && page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains("<b>") && !page.contains("<script>alert"), "{page}");
    let mistakes = section(&page, "mistakes").matches("src=\"data:image/png").count();
    assert!(mistakes >= 2, "{mistakes}");

    // A file that went, then all of them.
    let kept: Value = serde_json::from_str(&read(&run.join("evaluation.json"))).expect("JSON");
    let name = kept["mistakes"][0]["name"].as_str().expect("a name");
    std::fs::write(photos.join("val").join(name), "").or_else(|_| std::fs::write(name, "")).expect("emptied");
    let page = report(&run);
    assert_eq!(section(&page, "mistakes").matches("src=\"data:image/png").count(), mistakes - 1);
    std::fs::remove_dir_all(&photos).expect("removed");
    let page = report(&run);
    has_sections(&page, &WHOLE);
    let shown = section(&page, "mistakes");
    assert!(
        shown.contains("the data cannot be opened") && !shown.contains("<img") && shown.contains("&lt;b&gt;"),
        "{shown}"
    );
    assert!(section(&page, "attention").contains("the data cannot be opened"));
}

#[test]
fn several_labels_and_no_images_to_test_with() {
    let directory = tempfile::tempdir().expect("a directory");
    let photos = directory.path().join("photos");
    pictures(&photos);
    let mut table = "file,labels\n".to_string();
    for (number, class) in ["red", "green", "blue"].iter().enumerate() {
        for picture in 0..7 {
            table.push_str(&format!("train/{class}/{picture}.bmp,{}\n", if number == 0 { "red;warm" } else { class }));
        }
    }
    let manifest = photos.join("labels.csv");
    std::fs::write(&manifest, table).expect("written");
    let train = |name: &str, more: &[&str]| -> Outcome {
        let out = directory.path().join(name);
        let words =
            ["train", "small", "--out", text(&out), "--data", text(&manifest), "train.batch=4", "train.epochs=1"];
        vitreous(&[&words[..], &TINY[..6], more].concat())
    };
    train("several", &["data.validation_share=0.3"]).succeeded();
    let page = read(&directory.path().join("several/report.html"));
    has_sections(&page, &["curves", "classes", "attention", "gradients", "recipe", "machine"]);
    assert!(section(&page, "classes").contains("no list of mistakes"));
    assert!(page.contains("Mean average precision") && section(&page, "classes").contains("average precision</th>"));
    train("untested", &["data.validation_share=0"]).succeeded();
    let page = read(&directory.path().join("untested/report.html"));
    has_sections(&page, &["curves", "validation", "attention", "gradients", "recipe", "machine"]);
    assert!(section(&page, "validation").contains("There has been no evaluation yet"));
    assert!(!directory.path().join("untested/evaluation.json").exists());
}

/// What a reader sees: without style, scripts, tags and what they hold.
fn visible(page: &str) -> String {
    let body = page.split("<body").nth(1).expect("a body");
    let without_scripts: String =
        body.split("<script").map(|part| part.split_once("</script>").map_or(part, |(_, rest)| rest)).collect();
    without_scripts
        .split('<')
        .map(|part| part.split_once('>').map_or("", |(_, text)| text))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn the_epochs_loss_is_the_mean_over_its_steps() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    // Ten steps per epoch, and a line every four steps and at the end: of 4, 4 and 2 steps.
    train_tiny(&run, &["train.batch=1000", "optimizer.lr=1e-2"]).succeeded();
    let lines: Vec<(u64, f64)> =
        metrics(&run).iter().filter_map(|line| Some((line["step"].as_u64()?, line["loss"].as_f64()?))).collect();
    assert_eq!(lines.iter().map(|line| line.0).collect::<Vec<_>>(), [4, 8, 10, 12, 16, 20]);
    let mean = (2.0 * lines[3].1 + 4.0 * lines[4].1 + 4.0 * lines[5].1) / 10.0;
    let plain = (lines[3].1 + lines[4].1 + lines[5].1) / 3.0;
    assert!((mean - plain).abs() > 1e-3, "{mean} must differ from the mean of the lines");
    let told =
        vitreous(&["report", text(&run), "--json"]).succeeded().json_lines()[0]["loss"].as_f64().expect("a loss");
    assert!((told - mean).abs() < 1e-9, "{told} is not {mean}");
    let page = report(&run);
    assert!(lead(&page).contains(&format!(">{mean:.3}</span>")), "{}", lead(&page));
    assert!(lead(&page).contains("mean over the steps of epoch 2"), "{}", lead(&page));
}

#[test]
fn curves_have_their_values_and_can_be_smoothed() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    train_tiny(&run, &["train.batch=1000", "train.epochs=1"]).succeeded();
    let page = report(&run);
    let curves = section(&page, "curves");
    assert!(curves.contains("id=\"smoothing\"") && page.contains("function smoothed("));
    let data: Vec<Value> = curves
        .split("<script type=\"application/json\">")
        .skip(1)
        .map(|rest| serde_json::from_str(rest.split("</script>").next().expect("an end")).expect("JSON"))
        .collect();
    let loss = data.iter().find(|chart| chart["y"]["title"] == "loss").expect("a chart of the loss");
    let logged: Vec<f64> = metrics(&run).iter().filter_map(|line| line["loss"].as_f64()).collect();
    let shown: Vec<f64> = loss["series"][0]["y"].as_array().expect("values").iter().filter_map(Value::as_f64).collect();
    assert_eq!(shown.len(), logged.len());
    assert!(shown.iter().zip(&logged).all(|(a, b)| (a - b).abs() < 1e-5 * b), "{shown:?} is not {logged:?}");
    assert_eq!((&loss["series"][0]["name"], &loss["series"][1]["name"]), (&json!("training"), &json!("validation")));
}

#[test]
fn a_translators_report_does_not_speak_of_images() {
    let page = report(Path::new(translator()));
    has_sections(&page, &["curves", "translations", "gradients", "recipe", "machine"]);
    let text = visible(&page);
    assert!(text.contains("BLEU") && text.contains("1- to 4-gram precision") && text.contains("tokens/s"), "{text}");
    assert!(!text.to_lowercase().contains("image"), "{text}");
}

#[test]
fn results_on_other_validation_sets_are_not_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let photos = directory.path().join("photos");
    pictures(&photos);
    let [one, two, three] = ["one", "two", "three"].map(|name| directory.path().join(name));
    let tiny = ["train.batch=2000", "train.epochs=1"];
    train_tiny(&one, &tiny).succeeded();
    train_tiny(&two, &tiny).succeeded();
    let words = ["train", "small", "--out", text(&three), "--data", text(&photos), "train.batch=4", "train.epochs=1"];
    vitreous(&[&words, &TINY[..6]].concat()).succeeded();
    let page = directory.path().join("page.html");
    let numbers = |runs: [&Path; 2]| {
        vitreous(&["report", text(runs[0]), text(runs[1]), "--out", text(&page)]).succeeded();
        section(&read(&page), "numbers").to_string()
    };
    let same = numbers([&one, &two]);
    assert!(same.contains("marked best") && same.contains("A star marks the best") && !same.contains("differ, so"));
    let other = numbers([&one, &three]);
    for part in ["The validation sets differ", "2,000 and 6 samples", "Their classes differ", "Their data differs: "] {
        assert!(other.contains(part), "{part} is not in {other}");
    }
    assert!(!other.contains("marked best") && !other.contains("A star marks"), "{other}");
    // As many samples of the same classes, from another folder.
    let copy = directory.path().join("copy");
    pictures(&copy);
    let four = directory.path().join("four");
    let words = ["train", "small", "--out", text(&four), "--data", text(&copy), "train.batch=4", "train.epochs=1"];
    vitreous(&[&words, &TINY[..6]].concat()).succeeded();
    let copied = numbers([&three, &four]);
    assert!(copied.contains("Their data differs: ") && !copied.contains("samples") && !copied.contains("marked best"));
}

#[test]
fn runs_side_by_side_and_what_is_no_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let runs = directory.path().join("runs");
    let [one, two] = ["one", "<b>two"].map(|name| runs.join(name));
    train_tiny(&one, &["train.batch=1000", "train.epochs=1"]).succeeded();
    train_tiny(&two, &["train.batch=2000", "train.epochs=1", "optimizer.lr=1e-3"]).succeeded();
    let page = directory.path().join("both.html");
    let outcome = vitreous(&["report", text(&one), text(&two), "--out", text(&page)]).succeeded();
    assert_eq!(outcome.stdout, format!("{}\n", page.display()));
    let html = read(&page);
    has_sections(&html, &["numbers", "curves", "recipes", "classes"]);
    assert!(!html.contains("<b>two") && html.contains("&lt;b&gt;two"));
    let recipes = section(&html, "recipes");
    for part in ["<code>optimizer.lr</code>", "<code>0.002</code>", "<code>0.001</code>", "<code>train.batch</code>"] {
        assert!(recipes.contains(part), "{part} is not in {recipes}");
    }
    assert!(!recipes.contains("train.epochs"));
    // The best of each row is marked: that of the accuracy that metrics tell.
    let score = |run: &Path| metrics(run).iter().rev().find_map(|line| line["val_top1"].as_f64()).expect("a test");
    let best = format!("<td class=\"number marked best\">{:.2} %</td>", 100.0 * score(&one).max(score(&two)));
    assert!(section(&html, "numbers").contains(&best), "{best}");
    // They did not do the same work, so neither was faster.
    for row in ["time", "images per second"] {
        let row = section(&html, "numbers").split(&format!("<th>{row}</th>")).nth(1).expect(row);
        assert!(!row.split("</tr>").next().expect("a row").contains("best"), "{row}");
    }
    // The folder has both. A run that is named twice is taken once.
    let twice = vitreous(&["report", text(&runs), text(&one.join(".")), "--json"]).succeeded();
    assert_eq!(twice.json_lines().len(), 2);
    assert!(twice.stderr.contains("named more than once"), "{}", twice.stderr);
    let lines = vitreous(&["report", text(&runs), "--json"]).succeeded().json_lines();
    assert_eq!(
        lines.iter().map(|line| line["val_top1"].as_f64()).collect::<Vec<_>>(),
        [Some(score(&two)), Some(score(&one))]
    );

    vitreous(&["report", text(directory.path())]).failed(2, &["there is no run in it", "recipe.toml"]);
    vitreous(&["report", "nowhere"]).failed(2, &["nowhere: no such directory"]);
    vitreous(&["report"]).failed(2, &["RUN"]);
    // What is another page, or not ours, stays.
    vitreous(&["summary", text(&one), "--html", text(&one.join("report.html"))])
        .failed(2, &["report.html", "another page of vitreous (report, not summary)", "not overwritten"]);
    std::fs::write(one.join("report.html"), "<p>mine</p>").expect("written");
    vitreous(&["report", text(&one)]).failed(2, &["report.html", "not overwritten"]);
    assert_eq!(read(&one.join("report.html")), "<p>mine</p>");
    // Neither does it stop a run, which says so once: not after each epoch.
    let three = runs.join("three");
    std::fs::create_dir(&three).expect("a folder");
    std::fs::write(three.join("report.html"), "<p>mine</p>").expect("written");
    let outcome = train_tiny(&three, &["train.batch=2000"]).succeeded();
    assert_eq!(outcome.stderr.matches("the report cannot be written").count(), 1, "{}", outcome.stderr);
    assert_eq!(read(&three.join("report.html")), "<p>mine</p>");
}
