//! `vitreous convert`: what is written is read again with the same numbers.

mod common;

use std::fs;

use common::{ON_CPU, bare, fixtures, vitreous};

fn logits(model: &str) -> Vec<String> {
    let words = ["predict", model, "pictures", "--json"];
    let lines = vitreous(&[&words, &ON_CPU[..]].concat()).succeeded().json_lines();
    lines.iter().map(|line| line["logits"].to_string()).collect()
}

#[test]
fn there_and_back_the_same_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    let told = vitreous(&["convert", "tiny_vit", &path("copy")]).succeeded().stderr;
    assert!(told.contains("Hugging Face's layout (vit)"), "{told}");
    vitreous(&["convert", &path("copy"), &path("model.npz")]).succeeded();
    vitreous(&["convert", &path("model.npz"), &path("again")]).succeeded();
    let weights = |folder: &str| fs::read(format!("{folder}/model.safetensors")).expect("weights");
    assert_eq!(weights(&path("copy")), weights(&path("again")));
    assert_eq!(logits("tiny_vit"), logits(&path("copy")));
    // Labels and preprocessing came along where the layout has a place for them.
    let config = fs::read_to_string(path("copy/config.json")).expect("a configuration");
    assert!(config.contains("tüte, bag"), "{config}");
    assert!(fs::exists(path("copy/preprocessor_config.json")).expect("known"));
}

/// Pooling, dense layers and normalisation of sentence-transformers are in folders beside the weights.
#[test]
fn embeddings_are_the_same_after_converting() {
    let folder = tempfile::tempdir().expect("a folder");
    for model in ["texts/sentence_mean", "texts/sentence_cls", "texts/sentence_dense"] {
        let copy = folder.path().join(model).to_str().expect("text").to_string();
        vitreous(&["convert", model, &copy]).succeeded();
        let vectors = |model: &str| vitreous(&["embed", model, "the engine", "--json", "--device", "cpu"]).succeeded();
        assert_eq!(vectors(model).stdout, vectors(&copy).stdout, "{model}");
    }
    // Only folders of the model's are looked into.
    let escaping = folder.path().join("escaping");
    let model = common::texts::copied("sentence_mean", &escaping);
    common::texts::change(&model, "modules.json", |modules| {
        modules[1]["path"] = "../texts/sentence_cls/1_Pooling".into();
    });
    let copy = folder.path().join("deeper/copy");
    vitreous(&["convert", &model, copy.to_str().expect("text")]).succeeded();
    let names = |folder: &std::path::Path| {
        let entries = fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name()).filter(|name| name != "2_Normalize").count()
    };
    assert_eq!(names(&folder.path().join("deeper")), 1);
    assert!(!copy.join("1_Pooling").exists());
}

#[test]
fn nothing_that_was_saved_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    vitreous(&["convert", "tiny_vit", &path("model")]).succeeded();
    // The source itself is not overwritten.
    let before = fs::read(path("model/model.safetensors")).expect("weights");
    vitreous(&["convert", &path("model"), &path("model")]).failed(1, &["model"]);
    assert_eq!(fs::read(path("model/model.safetensors")).expect("weights"), before);
    // A target that cannot be written leaves nothing behind.
    fs::write(path("file"), b"precious").expect("written");
    vitreous(&["convert", "tiny_vit", &path("file")]).failed(2, &["is a file"]);
    assert_eq!(fs::read(path("file")).expect("the file"), b"precious");
    vitreous(&["convert", "tiny_vit", &path("file/inside")]).failed(1, &["file/inside"]);
    // The system's reason is told once.
    let told = vitreous(&["convert", "tiny_vit", &path("nowhere/model.npz")]).failed(1, &["nowhere/model.npz"]).stderr;
    assert_eq!(told.matches("os error").count(), 1, "{told}");
}

#[test]
fn a_broken_checkpoint_is_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    fs::create_dir(path("broken")).expect("a folder");
    for file in ["config.json", "preprocessor_config.json"] {
        fs::copy(fixtures().join("tiny_vit").join(file), path(&format!("broken/{file}"))).expect("copied");
    }
    vitreous(&["convert", &path("broken"), &path("out")]).failed(2, &["model.safetensors"]);
    let whole = fs::read(fixtures().join("tiny_vit/model.safetensors")).expect("weights");
    fs::write(path("broken/model.safetensors"), &whole[..whole.len() - 100]).expect("written");
    vitreous(&["convert", &path("broken"), &path("out")]).failed(2, &["model.safetensors"]);
    fs::write(path("broken/model.safetensors"), &whole).expect("written");
    fs::write(path("broken/config.json"), b"{\"model_type\": \"bert\"}").expect("written");
    vitreous(&["convert", &path("broken"), &path("out")]).failed(2, &["bert"]);
    assert!(!fs::exists(path("out")).expect("known"));
}

#[test]
fn a_directory_is_not_called_like_a_file_of_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    for name in ["model.safetensors", "model.PTH", "model.bin"] {
        vitreous(&["convert", "tiny_vit", &path(name)]).failed(2, &["written as a directory", "hint: "]);
        assert!(!fs::exists(path(name)).expect("known"));
    }
    vitreous(&["convert", "tiny_vit", &path("MODEL.NPZ")]).succeeded();
    assert!(fs::metadata(path("MODEL.NPZ")).expect("written").is_file());
}

/// timm's crop is torchvision's, which no preprocessor of `transformers` has.
#[test]
fn a_crop_that_transformers_places_otherwise_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    let timm = "../../../models/src/families/vit/tests/fixtures/timm_token";
    let told = vitreous(&["convert", timm, &path("timm")]).succeeded().stderr;
    assert!(told.contains("note: ") && told.contains("crop_placement"), "{told}");
    let written = fs::read_to_string(path("timm/preprocessor_config.json")).expect("a preprocessor");
    assert!(written.contains("crop_placement"), "{written}");
    // Neither where nothing is cropped, nor where no preprocessor is written.
    for to in [vec!["convert", "tiny_vit", &path("copy"), "--image", "48"], vec!["convert", timm, &path("timm.npz")]] {
        let told = vitreous(&to).succeeded().stderr;
        assert!(!told.contains("note: "), "{told}");
    }
}

#[test]
fn the_number_of_heads_can_be_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_string();
    bare("timm_token/model.safetensors", &folder.path().join("bare.safetensors"));
    let heads = |to: &str, arguments: &[&str]| {
        let (from, to) = (path("bare.safetensors"), path(to));
        vitreous(&[&["convert", from.as_str(), to.as_str()], arguments].concat()).succeeded();
        let text = fs::read(format!("{to}/config.json")).expect("a configuration");
        let config: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        config["num_attention_heads"].as_u64()
    };
    // 16 wide: one head of up to 64. Every command says that this is a guess, until it is told.
    let note = "note: the file does not tell the number of heads; 1 is taken from its width; --heads (of `explain`: --head-count) says otherwise";
    let file = path("bare.safetensors");
    let other = path("other");
    let commands: [&[&str]; 3] =
        [&["convert", "--force", &file, &other], &["summary", &file], &["predict", &file, "pictures/noise.png"]];
    for command in commands {
        let guessed = vitreous(command).succeeded().stderr;
        assert_eq!(guessed.lines().filter(|line| *line == note).count(), 1, "{guessed}");
        let said = vitreous(&[command, &["--heads", "4"]].concat()).succeeded().stderr;
        assert!(!said.contains("number of heads"), "{said}");
    }
    let answer = |heads: &str| vitreous(&["predict", &file, "pictures", "--json", "--heads", heads]).succeeded().stdout;
    assert_ne!(answer("1"), answer("2"));
    // A configuration that tells is believed.
    assert!(!vitreous(&["summary", "tiny_vit"]).succeeded().stderr.contains("note:"));
    assert_eq!(heads("guessed", &[]), Some(1));
    assert_eq!(heads("said", &["--heads", "4"]), Some(4));
    let three = ["convert", &path("bare.safetensors"), &path("refused"), "--heads", "3"];
    vitreous(&three).failed(2, &["3 heads do not divide a dim of 16"]);
}
