//! The plans of manifests as people have them, and of a large cluster.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use bindery_kit::peak_kib;
use serde_json::json;

use super::support::{Home, list, root};
use super::{claim, volume};

/// As many volumes, and claims that fit none of them.
const COUNT: usize = 400;

#[test]
fn manifests_as_people_have_them_are_planned_as_recorded() {
    let folder = root().join("crates/cli/tests/plan/manifests");
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.ends_with(".yaml")).collect();
    assert_eq!(names.len(), 11);
    for name in names {
        let manifests = fs::read_to_string(folder.join(&name)).unwrap();
        let home = Home::new();
        let ended = home.bindery(&["plan", "-f", &home.file(&name, manifests)]);
        let expected = fs::read_to_string(folder.join(&name).with_extension("txt")).unwrap();
        assert_eq!(ended.status, 0, "{name}: {ended:?}");
        assert_eq!(ended.stderr + &ended.stdout, expected, "{name}");
    }
}

/// The most memory that a plan has taken before its last claim is written, when the process still runs, and
/// the length of the plan, both in bytes.
fn memory_and_length(home: &Home, format: &str, nearest: &str) -> (u64, usize) {
    let last = match format {
        "json" => "\"name\": \"c399\"",
        "yaml" => "name: c399",
        _ => "default/c399:",
    };
    let mut command = home.command(&["plan", "--nearest", nearest, "-o", format, "-f", "all.json"]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let (mut line, mut length) = (String::new(), 0);
    while !line.contains(last) {
        line.clear();
        let read = output.read_line(&mut line).unwrap();
        assert_ne!(read, 0, "{format}: the plan ends without {last}");
        length += read;
    }
    let peak = 1024 * peak_kib(process.id());
    length += output.read_to_end(&mut Vec::new()).unwrap();
    assert!(process.wait().unwrap().success());
    (peak, length)
}

#[test]
fn a_plan_with_all_candidates_takes_little_more_memory_than_one_without() {
    let block = json!({"storageClassName": "", "volumeMode": "Block"});
    let of = |n| [volume(&format!("v{n}"), json!({})), claim(&format!("c{n:03}"), block.clone())];
    let objects: Vec<_> = (0..COUNT).flat_map(of).collect();
    let home = Home::new();
    home.file("all.json", list(&objects).to_string());
    for format in ["json", "yaml", "table"] {
        let (short, _) = memory_and_length(&home, format, "1");
        let (whole, length) = memory_and_length(&home, format, "all");
        let length = u64::try_from(length).unwrap();
        assert!(whole < short + length / 4, "{format}: {whole} bytes instead of {short}, for {length}");
    }
}
