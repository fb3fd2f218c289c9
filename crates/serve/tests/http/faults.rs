//! What fails around a server while it runs.

use serde_json::json;

use crate::client::*;

fn copied(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a fixture") {
        let entry = entry.expect("a file");
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    }
}

#[test]
fn a_model_directory_that_is_removed_is_served_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (vit, llama) = (folder.path().join("vit"), folder.path().join("llama"));
    copied(&fixture("tiny_vit"), &vit);
    copied(&language("llama").0, &llama);
    let server = start(vec![named("vit", vit.clone()), named("llama", llama)]);
    let picture = std::fs::read(fixture("pictures/noise.png")).expect("a picture");
    let before = post(server.address, "/classify/vit", "image/png", &picture).ok();
    folder.close().expect("removed");
    assert_eq!(post(server.address, "/classify/vit", "image/png", &picture).ok(), before);
    assert_eq!(post(server.address, "/explain/vit?format=json", "image/png", &picture).status, 200);
    let body = json!({"model": "llama", "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0});
    let theirs = language("llama").1["texts"][0].clone();
    assert_eq!(post_json(server.address, "/v1/completions", &body).ok()["choices"][0]["text"], theirs);
    // It cannot be loaded again, so that what is there goes on; its place on the disk is not told.
    let told = post(server.address, "/admin/reload", "", b"").refused(500);
    assert!(told.contains("`vit` cannot be opened") && !told.contains('/'), "{told}");
    assert_eq!(post(server.address, "/classify/vit", "image/png", &picture).ok(), before);
    std::fs::create_dir_all(&vit).expect("a folder");
    server.finish().expect("a clean end");
}

#[test]
fn a_model_that_cannot_be_opened_ends_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(vec![named("x", folder.path().join("nowhere"))]);
    let run = |options: vitreous_serve::ServeOptions| {
        vitreous_serve::runtime()
            .expect("a runtime")
            .block_on(async { vitreous_serve::Server::bind(options).await?.run(|_, _| panic!("it started")).await })
    };
    assert!(run(options.clone()).expect_err("no model").to_string().contains("no such file"));
    std::fs::create_dir(folder.path().join("nowhere")).expect("a folder");
    assert!(run(options.clone()).is_err());
    // A port that is taken.
    options.port = shared().port();
    assert!(run(options).expect_err("taken").to_string().contains("cannot listen on 127.0.0.1:"));
}
