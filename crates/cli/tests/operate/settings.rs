//! Settings: the same names on the command line, in the environment and in a file, and errors about bad ones.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use tempfile::TempDir;

/// A run of `bindery serve` that its settings must end.
#[derive(Default)]
struct Run {
    file: Option<&'static str>,
    environment: &'static [(&'static str, &'static str)],
    line: &'static [&'static str],
}

impl Run {
    /// Its message; it must end with status 2.
    fn complaint(&self) -> String {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
        command.current_dir(&folder).env_clear().envs(self.environment.iter().copied());
        command.args(["serve", "--listen=127.0.0.1:0"]);
        if let Some(text) = self.file {
            fs::write(folder.path().join("settings.yaml"), text).unwrap();
            let is_named = self.environment.iter().any(|(name, _)| *name == "BINDERY_CONFIG");
            command.args((!is_named).then_some("--config=settings.yaml"));
        }
        let output = command.args(self.line).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        complaint
    }
}

#[test]
fn the_command_line_overrides_the_environment_and_that_the_file() {
    const FILE: Option<&str> = Some("kubeconfig: /nonexistent/file\nlog: info\n");
    const ENVIRONMENT: &[(&str, &str)] = &[("BINDERY_KUBECONFIG", "/nonexistent/environment")];
    const LINE: &[&str] = &["--kubeconfig=/nonexistent/line"];
    for (run, used) in [
        (Run { file: FILE, ..Run::default() }, "/nonexistent/file"),
        (
            Run { file: FILE, environment: &[("BINDERY_CONFIG", "settings.yaml")], line: &[] },
            "/nonexistent/file",
        ),
        (Run { environment: ENVIRONMENT, ..Run::default() }, "/nonexistent/environment"),
        (Run { line: LINE, ..Run::default() }, "/nonexistent/line"),
        (Run { file: FILE, environment: ENVIRONMENT, line: &[] }, "/nonexistent/environment"),
        (Run { file: FILE, environment: &[], line: LINE }, "/nonexistent/line"),
        (Run { file: None, environment: ENVIRONMENT, line: LINE }, "/nonexistent/line"),
        (Run { file: FILE, environment: ENVIRONMENT, line: LINE }, "/nonexistent/line"),
    ] {
        let complaint = run.complaint();
        assert!(complaint.contains(&format!("--kubeconfig {used} cannot be used")), "{complaint}");
    }
}

fn file(text: &'static str) -> Run {
    Run { file: Some(text), ..Run::default() }
}

fn environment(environment: &'static [(&'static str, &'static str)]) -> Run {
    Run { environment, ..Run::default() }
}

fn line(line: &'static [&'static str]) -> Run {
    Run { line, ..Run::default() }
}

/// Checks that the message of each run contains these parts.
fn check(rows: &[(Run, &[&str])]) {
    for (run, said) in rows {
        let complaint = run.complaint();
        for part in *said {
            assert!(complaint.contains(part), "no {part:?} in {complaint}");
        }
    }
}

#[test]
fn a_bad_setting_is_refused_with_its_place_and_what_is_allowed() {
    check(&[
        (
            file("lease-duration: 1"),
            &["setting lease-duration in settings.yaml", "a whole number from 3 to 3600"],
        ),
        (
            environment(&[("BINDERY_LEASE_DURATION", "1")]),
            &["in the environment, as BINDERY_LEASE_DURATION", "a whole number from 3 to 3600"],
        ),
        (line(&["--lease-duration=1"]), &["--lease-duration", "a whole number from 3 to 3600"]),
        (file("lease-duration: -1"), &["setting lease-duration in", "-1", "a whole number from 3 to 3600"]),
        (file("mode: own it"), &["setting mode in settings.yaml", "[possible values: own, observe, steer]"]),
        (
            environment(&[("BINDERY_MODE", "both")]),
            &["as BINDERY_MODE", "[possible values: own, observe, steer]"],
        ),
        (line(&["--mode=both"]), &["--mode", "[possible values: own, observe, steer]"]),
        (
            file("host-path: volumes"),
            &["setting host-path in settings.yaml", "give an absolute path without `..`, such as /var/lib"],
        ),
        (line(&["--host-path=/srv/../etc"]), &["--host-path", "give an absolute path without `..`"]),
        (file("in-flight: 0"), &["setting in-flight in settings.yaml", "a whole number from 1 to 10000"]),
        (
            file("in-flight: 2.5"),
            &["setting in-flight in settings.yaml", "2.5", "a whole number from 1 to 10000"],
        ),
        (
            file("listen: 8080"),
            &["setting listen in settings.yaml", "8080", "not IP:PORT, such as 0.0.0.0:8080"],
        ),
        (file("journal-size: 0"), &["setting journal-size in settings.yaml", "number from 1 to 65536"]),
        (line(&["--journal-keep=100"]), &["--journal-keep 100 is less than twice --journal-size 64"]),
        (line(&["--journal-send=https://logs.example"]), &["--journal-send", "--journal is not given"]),
        (line(&["--journal-send-token=token"]), &["--journal-send-token is given without --journal-send"]),
        (line(&["--journal-send-ca=ca"]), &["--journal-send-ca is given without --journal-send"]),
        (
            line(&["--journal-redact-namespaces=true"]),
            &["--journal-redact-key-file is missing", "at least 32 random bytes"],
        ),
        (line(&["--journal-redact-key-file=key"]), &["--journal-redact-key-file key is given, and nothing"]),
        (
            line(&[
                "--journal-redact-annotation=a,volume.kubernetes.io/selected-node",
                "--journal-redact-key-file=key",
            ]),
            &["--journal-redact-annotation volume.kubernetes.io/selected-node", "leave it out"],
        ),
        (
            line(&["--journal-redact-label=a", "--journal-redact-key-file=/dev/null"]),
            &["--journal-redact-key-file /dev/null has 0 bytes; give a file of at least 32 random bytes"],
        ),
        (file("log: a=b=c"), &["setting log in settings.yaml", "a=b=c"]),
        (
            file("log: inof"),
            &["setting log in settings.yaml", "\"inof\" is neither a level", "warn, info, debug"],
        ),
        (
            file("lease-duraton: 5"),
            &["setting lease-duraton in settings.yaml", "there is no such setting", "lease-duration"],
        ),
        (file("identity: \"\""), &["setting identity in settings.yaml", "it is empty", "a name of its own"]),
        (environment(&[("BINDERY_IDENTITY", " ")]), &["as BINDERY_IDENTITY", "it is empty"]),
        (line(&["--identity="]), &["--identity", "it is empty"]),
        (file("config: other.yaml"), &["setting config in settings.yaml", "there is no such setting"]),
    ]);
}

#[test]
fn a_bad_setting_of_registries_is_refused_with_what_is_allowed() {
    check(&[
        (line(&["--registry-key=oci://ghcr.io/Team=a"]), &["--registry-key", "a repository has lower-case"]),
        (file("registry-key: oci://ghcr.io/team"), &["setting registry-key in", "is not PREFIX=VALUE"]),
        (
            line(&["--registry-pull-secret=team"]),
            &["--registry-pull-secret", "\"team\" is not NAMESPACE/NAME"],
        ),
        (file("registry-require: some"), &["setting registry-require in", "\"some\" is neither any nor all"]),
    ]);
}

#[test]
fn a_bad_setting_of_admission_is_refused_with_what_is_allowed() {
    check(&[
        (
            file("admission-rule: volume-to-small=warn"),
            &[
                "setting admission-rule in settings.yaml",
                "there is no rule",
                "volume-too-small, class-differs",
            ],
        ),
        (
            environment(&[("BINDERY_ADMISSION_RULE", "volume-too-small=warn,class-missing=loud")]),
            &["as BINDERY_ADMISSION_RULE", "there is no level \"loud\"; there are deny, warn, off"],
        ),
        (line(&["--admission-rule=pair-mismatch=deny"]), &["--admission-rule", "cannot deny"]),
        (line(&["--steer-class=manual=dynamic"]), &["--steer-class", "is not NAME or NAME=static"]),
        (file("steer-class: \"manual,\"\n"), &["setting steer-class in settings.yaml", "it is empty"]),
        (
            line(&["--admission-rule=class-missing=off", "--admission-rule=deny"]),
            &["\"deny\" is not RULE=LEVEL"],
        ),
        (
            file("admission-in-flight: 0"),
            &["setting admission-in-flight in settings.yaml", "from 1 to 100000"],
        ),
        (
            file("admission-rule: volume-too-small=warn,class-missing=off\nkubeconfig: /nonexistent/file\n"),
            &["--kubeconfig /nonexistent/file cannot be used"],
        ),
    ]);
}

#[test]
fn a_reclaimer_is_refused_in_mode_steer() {
    let folder = TempDir::new().unwrap();
    let document = "apiVersion: policy.bindery.dev/v1alpha1\nkind: ReclaimPolicy\n\
        metadata: {name: keep}\nspec: {module: missing.wasm}\n";
    fs::write(folder.path().join("keep.yaml"), document).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
    command.current_dir(&folder).env_clear().args(["serve", "--mode=steer", "--policy=keep.yaml"]);
    let output = command.output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("policy \"keep\": upstream reclaims volumes in mode steer"), "{complaint}");
}

#[test]
fn settings_that_would_be_misread_or_ignored_are_refused() {
    check(&[
        (file("listen:"), &["setting listen has no value"]),
        (file("listen: [a, b]"), &["setting listen is a list or a map"]),
        (file("lease-duration: 5\nlease-duration: 6"), &["settings.yaml", "duplicate"]),
        (file("just words"), &["settings.yaml", "is not a list of settings"]),
        (line(&["--config=/nonexistent"]), &["--config /nonexistent", "cannot be read"]),
        (
            file("mode: observe\n---\nmode: own"),
            &["settings.yaml", "line 3: a second YAML document begins", "in one document"],
        ),
        (
            environment(&[("BINDERY_LEASE_DURTATION", "15")]),
            &["sets BINDERY_LEASE_DURTATION", "did you mean BINDERY_LEASE_DURATION?"],
        ),
        (
            environment(&[("BINDERY_LEASE_SECONDS", "15")]),
            &["sets BINDERY_LEASE_SECONDS", "no such setting; unset it; `bindery serve --help` lists"],
        ),
        (
            // A Service named `bindery` sets these in pods of its namespace.
            environment(&[
                ("BINDERY_SERVICE_HOST", "10.0.0.1"),
                ("BINDERY_SERVICE_PORT_HTTPS", "443"),
                ("BINDERY_PORT", "tcp://10.0.0.1:443"),
                ("BINDERY_PORT_443_TCP_PROTO", "tcp"),
                ("BINDERY_REGISTRY_AUTH", "for `bindery policy`"),
            ]),
            &["give --kubeconfig (BINDERY_KUBECONFIG)"],
        ),
        (line(&["--engine=/nonexistent"]), &["/nonexistent"]),
        (line(&["--engine=/dev/null"]), &["--engine /dev/null is not a regular file", "or `native`"]),
        (file("# nothing\n"), &["give --kubeconfig (BINDERY_KUBECONFIG)"]),
    ]);
}

/// To open it would take until another process writes to it.
#[test]
fn given_a_pipe_as_engine_it_is_refused_unopened() {
    let folder = TempDir::new().unwrap();
    assert!(Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    // A start that hangs fails here and does not hang the test.
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_bindery"), "serve", "--engine=pipe"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(&folder);
    let output = command.output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("--engine pipe is not a regular file; "), "{complaint}");
}

#[test]
fn too_few_open_files_are_refused_with_the_number_needed() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" serve --listen=127.0.0.1:0"]);
    let output = command.arg(env!("CARGO_BIN_EXE_bindery")).env_clear().output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("may open 64 files, and needs 384"), "{complaint}");
}

fn helped() -> BTreeMap<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bindery"));
    let output = command.env_clear().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let settings = help.split("\n      --").skip(1).filter(|text| !text.starts_with("help"));
    let settings: BTreeMap<_, _> = settings
        .map(|setting| {
            let (head, said) = setting.split_once('\n').unwrap();
            (format!("--{}", head.split(' ').next().unwrap()), said.to_owned())
        })
        .collect();
    assert!(settings.len() > 8, "{help}");
    settings
}

/// The text between the first `begin` and the next `end`.
fn between<'help>(said: &'help str, begin: &str, end: char) -> Option<&'help str> {
    said.split_once(begin)?.1.split(end).next()
}

#[test]
fn every_setting_has_a_help_text_and_a_variable() {
    for (name, said) in helped() {
        assert!(said.trim().len() > 20, "{name} does not say what it does");
        assert!(said.contains("[env: "), "{name} has no name in the environment");
    }
}

#[test]
fn the_guide_lists_exactly_the_settings_with_variables_and_defaults() {
    const OF_UPSTREAM: &str = "upstream's";
    let guide = fs::read_to_string(concat!(env!("BINDERY_CHECKOUT"), "docs/operate.md")).unwrap();
    let cell =
        |text: &str| text.split(", ").map(|part| part.trim_matches('`').to_owned()).collect::<Vec<_>>();
    let mut listed = BTreeMap::new();
    for row in guide.lines().filter(|line| line.starts_with("| `--")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [names, variables, default, _] = cells[..] else { panic!("no four cells: {row}") };
        let (names, variables, defaults) = (cell(names), cell(variables), cell(default));
        assert_eq!(names.len(), variables.len(), "{row}");
        for (at, (name, variable)) in names.into_iter().zip(variables).enumerate() {
            let default = defaults.get(at).cloned().unwrap_or_default();
            assert!(listed.insert(name, (variable, default)).is_none(), "twice: {row}");
        }
    }
    let helped = helped();
    assert_eq!(listed.keys().collect::<Vec<_>>(), helped.keys().collect::<Vec<_>>());
    for (name, said) in &helped {
        let (variable, default) = &listed[name];
        assert_eq!(between(said, "[env: ", '='), Some(&**variable), "{name}");
        if let Some(told) = between(said, "[default: ", ']').filter(|_| default != OF_UPSTREAM) {
            assert_eq!(told, default, "{name}");
        }
    }
}
