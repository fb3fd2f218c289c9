//! `vitreous embed` against sentence-transformers and `transformers` (fixtures/texts), its files, and its search.

mod common;

use std::fs;
use std::path::Path;

use common::texts::{assert_close, change, copied, expected, numbers, on, strings};
use common::{vitreous, vitreous_with_input};
use serde_json::{Value, json};

const LIMIT: f64 = 1e-5;

/// A file with one text per line.
fn lines_in(folder: &Path, texts: &[&str]) -> String {
    let path = folder.join("lines.txt");
    fs::write(&path, texts.iter().map(|text| format!("{text}\n")).collect::<String>()).expect("written");
    path.to_str().expect("text").to_string()
}

fn vectors(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("a list").iter().map(numbers).collect()
}

fn assert_all_close(lines: &[Value], theirs: &Value) {
    let theirs = vectors(theirs);
    assert_eq!(lines.len(), theirs.len());
    for (line, theirs) in lines.iter().zip(theirs) {
        assert_close(&numbers(&line["embedding"]), &theirs, LIMIT);
    }
}

#[test]
fn vectors_are_those_of_sentence_transformers() {
    // Mean, normalised; and the first token behind a prompt. Both read 32 tokens, which some texts exceed.
    for model in ["sentence_mean", "sentence_cls"] {
        let expected = expected(model);
        let texts = strings(&expected["texts"]);
        let run = on("embed", model, &[&["--json"], &texts[..]].concat()).succeeded();
        let lines = run.json_lines();
        assert_all_close(&lines, &expected["vectors"]);
        assert!(lines.iter().zip(&texts).all(|(line, text)| line["text"] == *text));
        assert!(run.stderr.contains("longer than the model reads, 32 tokens"), "{}", run.stderr);
        let folder = tempfile::tempdir().expect("a folder");
        let file = on("embed", model, &["--json", "--file", &lines_in(folder.path(), &texts)]).succeeded();
        assert_all_close(&file.json_lines(), &expected["vectors"]);
        for text in &texts[..3] {
            let alone = on("embed", model, &["--json", text]).succeeded().json_lines();
            let place = texts.iter().position(|there| there == text).expect("it is there");
            assert_close(&numbers(&alone[0]["embedding"]), &numbers(&lines[place]["embedding"]), 1e-6);
        }
    }
}

#[test]
fn every_pooling_is_that_of_the_tokens() {
    let expected = expected("bert_plain");
    let texts = strings(&expected["texts"]);
    for pooling in ["cls", "mean", "max", "last"] {
        let arguments = [&["--json", "--pooling", pooling], &texts[..]].concat();
        let run = on("embed", "bert_plain", &arguments).succeeded();
        assert_all_close(&run.json_lines(), &expected[pooling]);
        assert!(!run.stderr.contains("--pooling chooses"), "{}", run.stderr);
    }
    let usual = on("embed", "bert_plain", &[&["--json"], &texts[..]].concat()).succeeded();
    assert_all_close(&usual.json_lines(), &expected["mean"]);
    assert!(usual.stderr.contains("--pooling chooses"), "{}", usual.stderr);
}

#[test]
fn vectors_can_be_normalised_or_not() {
    let length = |model: &str, more: &[&str]| {
        let run = on("embed", model, &[&["--json", "a meal"], more].concat()).succeeded();
        numbers(&run.json_lines()[0]["embedding"]).iter().map(|number| number * number).sum::<f64>().sqrt()
    };
    assert!((length("bert_plain", &[]) - 1.0).abs() > 0.1);
    assert!((length("bert_plain", &["--normalize"]) - 1.0).abs() < 1e-6);
    assert!((length("sentence_mean", &[]) - 1.0).abs() < 1e-6);
    assert!((length("sentence_mean", &["--normalize=false"]) - 1.0).abs() > 0.1);
}

#[test]
fn a_search_ranks_lines_as_sentence_transformers_does() {
    let folder = tempfile::tempdir().expect("a folder");
    for model in ["sentence_mean", "sentence_cls"] {
        let expected = expected(model);
        let texts = strings(&expected["texts"]);
        let file = lines_in(folder.path(), &texts);
        for (query, ranking) in strings(&expected["queries"]).iter().zip(expected["ranking"].as_array().expect("lists"))
        {
            let run = on("embed", model, &["--file", &file, "--search", query, "--top", "99", "--json"]).succeeded();
            let found = run.json_lines();
            let ranking = ranking.as_array().expect("a list");
            assert_eq!(found.len(), ranking.len());
            for (rank, (ours, theirs)) in found.iter().zip(ranking).enumerate() {
                assert_eq!((&ours["rank"], &ours["line"]), (&json!(rank + 1), &theirs["line"]), "{model} {query}");
                assert_close(&numbers(&json!([ours["score"]])), &numbers(&json!([theirs["score"]])), LIMIT);
                assert_eq!(ours["text"], texts[ours["line"].as_u64().expect("a line") as usize - 1]);
            }
            let short = on("embed", model, &["--file", &file, "--search", query, "--top", "2"]).succeeded();
            assert_eq!(short.stdout.lines().count(), 2, "{}", short.stdout);
        }
    }
}

/// Equal texts keep the order of their lines.
#[test]
fn equal_scores_are_in_the_order_of_lines() {
    let run = on("embed", "sentence_mean", &["b", "a meal", "a meal", "a meal", "--search", "a meal", "--json"]);
    let lines: Vec<u64> =
        run.succeeded().json_lines().iter().map(|line| line["line"].as_u64().expect("a line")).collect();
    assert_eq!(lines, [2, 3, 4, 1]);
}

/// The numbers of a `.npy` of f32, and its shape.
fn read_npy(path: &Path) -> (String, Vec<f32>) {
    let bytes = fs::read(path).expect("a file");
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    assert_eq!((10 + header) % 64, 0);
    let text = String::from_utf8(bytes[10..10 + header].to_vec()).expect("text");
    assert!(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (") && text.ends_with('\n'), "{text}");
    let shape = text.split(['(', ')']).nth(1).expect("a shape").to_string();
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    (shape, bytes[10 + header..].chunks_exact(4).map(number).collect())
}

#[test]
fn vectors_are_written_to_npy() {
    let folder = tempfile::tempdir().expect("a folder");
    let expected = expected("sentence_mean");
    let file = lines_in(folder.path(), &strings(&expected["texts"]));
    let out = folder.path().join("vectors.npy");
    let arguments = ["--file", &file, "--out", out.to_str().expect("text")];
    let run = on("embed", "sentence_mean", &arguments).succeeded();
    assert_eq!(run.stdout, "");
    let (shape, numbers) = read_npy(&out);
    let theirs = vectors(&expected["vectors"]);
    assert_eq!(shape, format!("{}, 8", theirs.len()));
    let ours: Vec<f64> = numbers.into_iter().map(f64::from).collect();
    assert_close(&ours, &theirs.concat(), LIMIT);

    let before = fs::read(&out).expect("a file");
    on("embed", "sentence_mean", &arguments).failed(2, &["vectors.npy: the file exists", "--force"]);
    assert_eq!(fs::read(&out).expect("a file"), before);
    let other = ["a", "--out", out.to_str().expect("text"), "--force"];
    on("embed", "sentence_mean", &other).succeeded();
    assert_eq!(read_npy(&out).0, "1, 8");
}

#[test]
fn vectors_are_written_to_parquet() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let folder = tempfile::tempdir().expect("a folder");
    let expected = expected("sentence_mean");
    let texts = strings(&expected["texts"]);
    let out = folder.path().join("vectors.parquet");
    let arguments = [&["--out", out.to_str().expect("text")], &texts[..]].concat();
    on("embed", "sentence_mean", &arguments).succeeded();
    let reader = SerializedFileReader::new(fs::File::open(&out).expect("a file")).expect("Parquet");
    let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
    assert_eq!(rows.len(), texts.len());
    for ((row, text), theirs) in rows.iter().zip(&texts).zip(vectors(&expected["vectors"])) {
        let columns: Vec<(&String, &Field)> = row.get_column_iter().collect();
        assert_eq!((columns[0].0.as_str(), columns[1].0.as_str()), ("text", "embedding"));
        assert_eq!(columns[0].1, &Field::Str(text.to_string()));
        let Field::ListInternal(list) = columns[1].1 else { panic!("{:?}", columns[1]) };
        let number = |field: &Field| match field {
            Field::Float(number) => f64::from(*number),
            other => panic!("{other:?}"),
        };
        assert_close(&list.elements().iter().map(number).collect::<Vec<f64>>(), &theirs, LIMIT);
    }
}

#[test]
fn files_that_cannot_be_written_leave_nothing_behind() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    on("embed", "sentence_mean", &["a", "--out", &out("vectors.csv")]).failed(2, &[".npy or .parquet"]);
    on("embed", "sentence_mean", &["a", "--out", &out("none/vectors.npy")]).failed(2, &["there is no directory"]);
    let missing = out("missing.txt");
    let arguments = ["--file", missing.as_str(), "--out", &out("vectors.npy")];
    on("embed", "sentence_mean", &arguments).failed(2, &["missing.txt"]);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
}

/// A file system without room: a limit on the size of files gives the same error.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_one_sentence_and_leaves_no_file() {
    use std::process::Command;
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["vectors.npy", "vectors.parquet"] {
        let out = folder.path().join(name);
        let texts: Vec<String> = (0..2000).map(|number| format!("text {number}")).collect();
        let file = lines_in(folder.path(), &texts.iter().map(String::as_str).collect::<Vec<_>>());
        // 16 blocks of 512 or 1024 bytes; the signal of the limit is ignored, as by a program under nohup.
        let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"";
        let run = Command::new("bash")
            .args(["-c", script, env!("CARGO_BIN_EXE_vitreous"), "embed", "texts/sentence_mean", "--device", "cpu"])
            .args(["--file", &file, "--out"])
            .arg(&out)
            .current_dir(common::fixtures())
            .output()
            .expect("bash runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.contains("too large") && said.contains(name) && !said.contains("panicked"), "{said}");
        fs::remove_file(file).expect("removed");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }
}

#[test]
fn images_are_embedded_and_searched() {
    let vit = ["embed", "tiny_vit", "--device", "cpu"];
    let run = vitreous(&[&vit[..], &["pictures", "--json"]].concat()).succeeded();
    let lines = run.json_lines();
    let features = vitreous(&["predict", "tiny_vit", "--device", "cpu", "pictures", "--features", "--json"])
        .succeeded()
        .json_lines();
    assert_eq!(lines.len(), 3);
    for (line, features) in lines.iter().zip(&features) {
        assert_eq!(line["path"], features["path"]);
        assert_eq!(line["embedding"], features["features"]);
    }
    let query = "pictures/smooth.png";
    let found = vitreous(&[&vit[..], &["pictures", "--search", query, "--json"]].concat()).succeeded().json_lines();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0]["path"], query);
    assert_close(&[found[0]["score"].as_f64().expect("a score")], &[1.0], 1e-6);
    assert!(found.windows(2).all(|pair| pair[0]["score"].as_f64() >= pair[1]["score"].as_f64()));
    vitreous(&[&vit[..], &["pictures", "--search", "missing.png"]].concat()).failed(2, &["missing.png"]);
    vitreous(&[&vit[..], &["--file", "x"]].concat()).failed(2, &["takes images"]);
    vitreous(&vit).failed(2, &["name images"]);
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("vectors.npy");
    vitreous(&[&vit[..], &["pictures", "--normalize", "--out", out.to_str().expect("text")]].concat()).succeeded();
    let (shape, numbers) = read_npy(&out);
    assert_eq!(shape, "3, 24");
    let length = numbers[..24].iter().map(|number| number * number).sum::<f32>().sqrt();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
}

#[test]
fn texts_come_in_on_standard_input_and_text_output_is_one_line_each() {
    for arguments in [&["-"][..], &["--file", "-"], &[]] {
        let all = [&["embed", "texts/sentence_mean", "--device", "cpu"], arguments].concat();
        let run = vitreous_with_input(&all, "a\n\nthe\tengine\n").succeeded();
        let lines: Vec<&str> = run.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "{}", run.stdout);
        assert_eq!(lines[2].rsplit('\t').next().expect("numbers").split(' ').count(), 8);
    }
    let file = on("embed", "sentence_mean", &["pictures/noise.png"]).succeeded();
    assert!(file.stderr.contains("is taken as a text"), "{}", file.stderr);
}

/// Linear layers behind the pooling, of all activations that are known here, with and without a bias and residual connections.
#[test]
fn dense_modules_are_those_of_sentence_transformers() {
    let file = fs::read(common::fixtures().join("texts/dense.json")).expect("a fixture");
    let expected: Value = serde_json::from_slice(&file).expect("JSON");
    for model in ["sentence_dense", "sentence_layers"] {
        let texts = strings(&expected[model]["texts"]);
        let run = on("embed", model, &[&["--json"], &texts[..]].concat()).succeeded();
        assert_all_close(&run.json_lines(), &expected[model]["vectors"]);
    }
    // More texts than are computed at a time.
    let folder = tempfile::tempdir().expect("a folder");
    let texts = strings(&expected["sentence_layers"]["texts"]).repeat(40);
    let many = on("embed", "sentence_layers", &["--json", "--file", &lines_in(folder.path(), &texts)]).succeeded();
    let theirs = expected["sentence_layers"]["vectors"].as_array().expect("vectors");
    assert_all_close(&many.json_lines(), &theirs.iter().cycle().take(texts.len()).cloned().collect());
    let length = |more: &[&str]| {
        let run = on("embed", "sentence_layers", &[&["--json", "a meal"], more].concat()).succeeded();
        numbers(&run.json_lines()[0]["embedding"]).iter().map(|number| number * number).sum::<f64>().sqrt()
    };
    assert!((length(&[]) - 1.0).abs() < 1e-6 && (length(&["--normalize=false"]) - 1.0).abs() > 0.1);
}

#[test]
fn dense_modules_that_are_not_known_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let changed = |number: usize, change_it: &dyn Fn(&str)| {
        let model = copied("sentence_dense", &folder.path().join(number.to_string()));
        change_it(&model);
        vitreous(&["embed", &model, "a", "--device", "cpu"])
    };
    let config = |key: &'static str, value: Value| {
        move |model: &str| change(model, "2_Dense/config.json", |config| config[key] = value.clone())
    };
    let selu = json!("torch.nn.modules.activation.SELU");
    changed(0, &config("activation_function", selu)).failed(2, &["2_Dense/config.json", "SELU", "GELU"]);
    let own = json!("somebody.code.Activation");
    changed(1, &config("activation_function", own)).failed(2, &["\"somebody.code.Activation\""]);
    let tokens = json!("token_embeddings");
    changed(2, &config("module_input_name", tokens)).failed(2, &["\"token_embeddings\""]);
    changed(3, &config("in_features", json!(9))).failed(2, &["9 numbers", "have 8"]);
    changed(4, &config("out_features", json!(6))).failed(2, &["linear.weight", "[5, 8]", "[6, 8]"]);
    changed(5, &config("out_features", json!(u64::MAX))).failed(2, &["2_Dense"]);
    changed(6, &config("bias", json!(3))).failed(2, &["bias is 3"]);
    let without =
        |file: &'static str| move |model: &str| fs::remove_file(Path::new(model).join(file)).expect("removed");
    changed(7, &without("2_Dense/model.safetensors")).failed(2, &["2_Dense", "pytorch_model.bin"]);
    changed(8, &without("2_Dense/config.json")).failed(2, &["2_Dense/config.json"]);
}
