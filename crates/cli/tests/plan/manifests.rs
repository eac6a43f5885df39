//! The plans of manifests as people have them, and of a large cluster.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use bindery_kit::peak_kib;
use serde_json::json;

use super::support::{Home, list, root};
use super::{claim, volume};

/// As many volumes, and claims that fit none of them.
const COUNT: usize = 600;

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

/// Memory is read before the last claim is written, so that the process still runs.
#[test]
fn a_plan_takes_less_memory_than_its_length() {
    let block = json!({"storageClassName": "", "volumeMode": "Block"});
    let of = |n| [volume(&format!("v{n}"), json!({})), claim(&format!("c{n:03}"), block.clone())];
    let objects: Vec<_> = (0..COUNT).flat_map(of).collect();
    let home = Home::new();
    home.file("all.json", list(&objects).to_string());
    let last = format!("c{:03}", COUNT - 1);
    for format in ["json", "yaml"] {
        let mut command = home.command(&["plan", "--nearest", "all", "-o", format, "-f", "all.json"]);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let (mut line, mut length) = (String::new(), 0);
        while !line.contains(&last) {
            line.clear();
            length += output.read_line(&mut line).unwrap();
        }
        let peak = 1024 * peak_kib(process.id());
        length += output.read_to_end(&mut Vec::new()).unwrap();
        assert!(process.wait().unwrap().success());
        assert!(peak < u64::try_from(length).unwrap(), "{format}: {peak} bytes for {length}");
    }
}
