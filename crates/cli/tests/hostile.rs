//! Broken and hostile engines in the command: one sentence, the exit status of the help text, and no write.
//! `tests/hostile.rs` has all such engines, with their faults. And journals that anyone may have written.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../../tests/faulty.rs"]
mod faulty;
#[path = "hostile/journal.rs"]
mod journal;
#[path = "playground/running.rs"]
mod running;
mod support;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use bindery_kit::module::Module;
use running::Playground;
use rustix::process::Signal;
use serde_json::{Deserializer, Value, json};
use support::{Home, example};

/// Engines that are not loaded, and the sentence about each.
const REFUSED: [(&str, &str); 4] = [
    (
        "imports-wasi",
        "the component imports wasi:cli/environment@0.2.0, wasi:clocks/wall-clock@0.2.0, which is outside \
         its world; build it without WASI: Rust for the target wasm32-unknown-unknown, JavaScript with all \
         of `disableFeatures` of componentize-js, Python with `--stub-wasi` of componentize-py",
    ),
    (
        "exports-another-world",
        "the component does not export bindery:policy/decide but example:other/run@1.0.0; build it for the \
         world `engine` of \
         bindery:policy",
    ),
    (
        "exports-a-later-version",
        "the component is made for bindery:policy/decide@0.9.0; this host serves bindery:policy 0.2 and 0.1: \
         rebuild it against one of these",
    ),
    (
        "is-a-core-module",
        "the component is a core module, not a component; make a component of it with `wasm-tools component \
         new`",
    ),
];

/// Engines that reach no decision, and why.
const STOPPED: [(&str, &str); 8] = [
    ("loops", "the engine was stopped: out of fuel"),
    ("recurses", "the engine trapped: wasm trap: call stack exhausted"),
    ("allocates", "the engine trapped: it asked for 16842752 bytes of memory; the limit is 16777216"),
    ("answers-an-unknown-case", "the engine's answer is not a decision: "),
    ("answers-a-megabyte", "the engine's answer is not a decision: "),
    ("asks-for-ever", "more than 1024 questions in one decision"),
    ("asks-for-an-unknown-handle", "a question that has no answer: a handle that was not given in this call"),
    ("traps", "the engine trapped: wasm trap: wasm `unreachable` instruction executed"),
];

/// The standard error of a plan with that engine; it must exit with status 2 and leave no file.
fn complaint(name: &str) -> String {
    let home = Home::new();
    let engine = home.file(&format!("{name}.wasm"), faulty::built(name));
    let files = example("static-binding");
    let ended = home.bindery(&["plan", "-f", files.to_str().unwrap(), "--engine", &engine]);
    assert_eq!((ended.status, ended.stdout.as_str()), (2, ""), "{name}: {ended:?}");
    assert_eq!(home.content(), [engine], "{name}");
    let sentence = ended.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(!sentence.contains('\n'), "{name}: more than a sentence: {sentence}");
    sentence.to_owned()
}

#[test]
fn the_help_of_plan_lists_its_exit_statuses() {
    let ended = Home::new().bindery(&["plan", "--help"]);
    let help: Vec<&str> = ended.stdout.split_whitespace().collect();
    let help = help.join(" ");
    for says in
        ["Exits with status 0 when there is a plan", "with 2 when the manifests or the engine cannot be used"]
    {
        assert!(help.contains(says), "{help}");
    }
}

#[test]
fn an_engine_that_cannot_be_loaded_is_refused_in_one_sentence() {
    for (name, sentence) in REFUSED {
        assert_eq!(complaint(name), format!("error: {name}.wasm: {sentence}"));
    }
}

#[test]
fn an_engine_that_reaches_no_decision_makes_no_plan() {
    for (name, why) in STOPPED {
        let said = complaint(name);
        let starts = format!("error: {name}.wasm: persistentvolumeclaim default/");
        assert!(said.starts_with(&starts) && said.contains(&format!(": no decision: {why}")), "{said}");
    }
}

#[test]
fn a_policy_that_cannot_check_its_settings_holds_its_claims_and_no_start() {
    let home = Home::new();
    home.file("p.wasm", Module::default().component());
    // More than the memory of the module.
    let settings = json!({"text": "x".repeat(1 << 17)});
    let spec = json!({"module": "p.wasm", "settings": settings});
    let document = bindery_kit::json::policy("MatchPolicy", "p", &spec);
    home.file("p.yaml", document.to_string());
    let policy = ["--policy", "p.yaml", "--engine", "native"];
    let serve = [&["serve", "--listen", "127.0.0.1:0", "--kubeconfig", "missing"], &policy[..]].concat();
    let said = home.bindery(&serve).stderr;
    assert!(said.contains("what the policy applies to waits") && said.contains("policy=\"p\""), "{said}");
    assert!(said.contains("--kubeconfig missing cannot be used"), "{said}");
    let plan = [&["plan", "-f", "p.yaml"], &policy[..]].concat();
    let said = home.bindery(&plan).stderr;
    let starts = "error: p.yaml, line 1: policy \"p\": it did not check its settings: ";
    assert!(said.starts_with(starts), "{said}");
}

/// What `bindery serve` runs for modules of cluster objects.
#[test]
fn a_compiler_process_fills_the_cache_and_says_what_it_cannot_compile() {
    let home = Home::new();
    let module = home.file("p.wasm", Module::default().component());
    let garbage = home.file("garbage.wasm", b"\0asm\x0d\0\x01\0\xff");
    let compile = |file: &str, size: &str| {
        let cache = ["--engine-cache", "cache", "--engine-cache-size", size];
        let mut command = home.command(&[&["compile", "--kind", "policy"], &cache[..]].concat());
        command.stdin(File::open(home.path().join(file)).unwrap()).output().unwrap()
    };
    let is_compiled = || home.content().iter().any(|name| name.ends_with(".cwasm"));
    // The status tells whether another try may succeed.
    for (file, size, status) in [(&garbage, "512Mi", 3), (&module, "8", 2)] {
        let failed = compile(file, size);
        assert_eq!(failed.status.code(), Some(status));
        let said = String::from_utf8(failed.stderr).unwrap();
        assert!(said.lines().any(|line| line.starts_with("error: ")), "{said}");
        assert!(!is_compiled());
    }
    assert!(compile(&module, "512Mi").status.success());
    assert!(is_compiled());
}

#[test]
fn given_a_compiler_process_its_memory_time_and_priority_are_limited() {
    let home = Home::new();
    let mut command = home.command(&["compile", "--kind", "policy", "--engine-cache", "cache"]);
    let mut compiler = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // More than a pipe holds: it reads after it has limited itself.
    compiler.stdin.as_mut().unwrap().write_all(&[0; 1 << 20]).unwrap();
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", compiler.id())).unwrap();
    let limits = of("limits");
    let soft = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().split_whitespace().next().unwrap().parse::<u64>().ok()
    };
    // In a container it is less.
    assert!(soft("Max data size").is_some_and(|bytes| bytes <= 1_536 << 20), "{limits}");
    assert_eq!(soft("Max cpu time"), Some(180), "{limits}");
    let stat = of("stat");
    let nice = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16);
    assert_eq!(nice, Some("19"), "{stat}");
    drop(compiler.stdin.take());
    assert_eq!(compiler.wait().unwrap().code(), Some(3));
}

/// The binder continues, logs the cause with one of the objects, and writes nothing.
#[test]
fn a_playground_with_a_hostile_engine_changes_no_object() {
    let home = Home::new();
    home.file("loops.wasm", faulty::built("loops"));
    let (log, its_end) = std::io::pipe().unwrap();
    let engine = home.path().join("loops.wasm");
    let playground = Playground::start_logging_to(its_end, &["--engine", engine.to_str().unwrap()]);
    let created =
        playground.kubectl(&["create", "-o", "json", "-f", example("static-binding").to_str().unwrap()]);
    let created: Vec<Value> = Deserializer::from_str(&created).into_iter().collect::<Result<_, _>>().unwrap();
    let objects =
        created.iter().flat_map(|object| object["items"].as_array().cloned().unwrap_or(vec![object.clone()]));
    let objects: Vec<Value> = objects.collect();
    let claims: Vec<String> = objects
        .iter()
        .filter(|object| object["kind"] == "PersistentVolumeClaim")
        .map(|claim| format!("persistentvolumeclaim default/{}", claim["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert!(!claims.is_empty(), "{objects:?}");

    // One cause is logged once a second.
    let mut lines = BufReader::new(log).lines();
    let mut next = || lines.next().expect("the binder goes on").unwrap();
    for _ in 0..3 {
        let failed = |line: &String| {
            line.contains("sync failed") && line.contains("no decision: the engine was stopped: out of fuel")
        };
        let line = std::iter::repeat_with(&mut next).find(failed).unwrap();
        assert!(claims.iter().any(|claim| line.contains(claim.as_str())), "{line}");
    }
    for object in &objects {
        let kind = object["kind"].as_str().unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let now: Value =
            serde_json::from_str(&playground.kubectl(&["get", kind, name, "-o", "json"])).unwrap();
        assert_eq!(&now, object);
    }
    playground.stop(Signal::INT);
}
