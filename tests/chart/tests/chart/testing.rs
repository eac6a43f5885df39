//! The script that `helm test` runs, against a release that is not ready yet.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use bindery_chart::{rendered, run};
use serde_json::json;
use tempfile::TempDir;

const READY: &str = "HTTP/1.1 200 OK\r\n\r\n[+]lists ok\n";
const NOT_READY: &str = "HTTP/1.1 500 Internal Server Error\r\n\r\n[-]lists failed: nodes\n";
/// Takes the next answer. Without one it fails, as when the port is closed.
const NC: &str = "#!/bin/sh
read -r verb path rest
echo \"$4 $path\" >> asked
cat \"$(grep -c . asked)\"
";

/// Runs the script with these answers, one for each call of `nc`; `None` is a closed port. Returns its
/// output, as an error if it fails, and what it has asked for.
fn test(answers: &[Option<&str>]) -> (Result<String, String>, Vec<String>) {
    let folder = TempDir::new().unwrap();
    let place = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    place("nc", NC);
    // No time passes between two tries.
    place("sleep", "#!/bin/sh\n");
    for (at, answer) in answers.iter().enumerate().filter_map(|(at, answer)| Some((at, (*answer)?))) {
        place(&(at + 1).to_string(), answer);
    }
    let release = rendered(&json!({}));
    let script = release.at("Pod/bindery-test /spec/containers/test/args/0").unwrap().as_str().unwrap();
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(&folder).env("BINDERY_SERVICE_HOST", "192.0.2.1");
    command.env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
    let done = run(&mut command, "");
    let asked = fs::read_to_string(folder.path().join("asked")).unwrap();
    (done, asked.lines().map(str::to_owned).collect())
}

#[test]
fn given_an_empty_or_unready_answer_helm_test_tries_again() {
    let ready = [Some(""), None, Some(NOT_READY), Some(READY)];
    let metrics = [Some(""), Some("HTTP/1.1 200 OK\r\n\r\nbindery_lists_complete 1\n")];
    let webhook = [None, Some("")];
    let (done, asked) = test(&[&ready[..], &metrics, &webhook].concat());
    done.unwrap();
    assert_eq!(asked, [&["8080 /readyz?verbose"; 4][..], &["8080 /metrics"; 2], &["443 "; 2]].concat());
}

#[test]
fn given_a_release_that_stays_unready_helm_test_prints_its_last_answer() {
    let (done, asked) = test(&[Some(NOT_READY); 40]);
    let printed = done.unwrap_err();
    assert!(printed.contains("/readyz?verbose was answered:\n"), "{printed}");
    assert!(printed.contains("[-]lists failed: nodes\n"), "{printed}");
    assert!((2..40).contains(&asked.len()), "{asked:?}");
}
