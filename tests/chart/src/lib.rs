//! The Helm chart for tests: rendered by the real Helm, object by object. A function panics if a test must
//! fail.

mod documents;
mod objects;
mod operator;
mod rights;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub use bindery_servers::built;
pub use documents::{Row, commands, table};
pub use objects::Objects;
pub use operator::Operator;
pub use rights::{Right, granted};

/// The release that is rendered. Its objects have its name, because it contains the chart's name.
pub const RELEASE: &str = "bindery";
/// Its namespace.
pub const NAMESPACE: &str = "bindery-system";
/// The version of Kubernetes that the chart is rendered for: that of the tests' control plane.
pub const KUBERNETES: &str = "1.36.2";

/// The root of the checkout.
pub fn root() -> &'static Path {
    option_env!("BINDERY_CHECKOUT").map_or_else(|| panic!("start cargo within the checkout"), Path::new)
}

/// The chart's folder.
pub fn chart() -> PathBuf {
    root().join("charts/bindery")
}

/// A file of the checkout.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Parses YAML.
pub fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The sets of values that chart-testing uses, with the names of their files, and the defaults.
pub fn sets() -> Vec<(String, Value)> {
    let files = fs::read_dir(chart().join("ci")).expect("the chart must have sets of values");
    let mut sets = vec![("defaults".to_owned(), Value::Object(serde_json::Map::new()))];
    for file in files {
        let path = file.expect("a folder must be readable").path();
        let name = path.file_name().expect("a file must have a name").to_string_lossy().into_owned();
        sets.push((name, yaml(&fs::read_to_string(&path).expect("a set of values must be readable"))));
    }
    sets.sort_by(|one, other| one.0.cmp(&other.0));
    sets
}

/// A path, or several, that `cargo xtask test` passes to tests in a variable.
pub fn offered(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).filter(|value| !value.is_empty());
    path.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`")).into()
}

/// Runs a program with a text on its standard input, and returns its output.
pub fn run(command: &mut Command, input: &str) -> Result<String, String> {
    let output = bindery_servers::run(command, input);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("a program must print UTF-8");
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(format!("{}{}", text(output.stdout), text(output.stderr)))
    }
}

/// Helm, in the checkout, without the user's own configuration.
pub fn helm<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut helm = Command::new(offered("BINDERY_HELM"));
    helm.env_clear().env("HOME", "/nonexistent").env("HELM_NO_PLUGINS", "1").args(arguments);
    helm.current_dir(root());
    helm
}

/// The manifests of a release with these values, as text.
pub fn manifests(values: &Value) -> Result<String, String> {
    manifests_of(RELEASE, NAMESPACE, values)
}

/// The manifests of a release with this name in this namespace.
pub fn manifests_of(release: &str, namespace: &str, values: &Value) -> Result<String, String> {
    let mut helm = helm(["template", release]);
    helm.arg(chart()).args(["--namespace", namespace, "--kube-version", KUBERNETES, "--values", "-"]);
    run(&mut helm, &values.to_string())
}

/// The objects of a release with these values.
pub fn render(values: &Value) -> Result<Objects, String> {
    manifests(values).map(|text| Objects::read(&text))
}

/// The objects of a release with values that Helm accepts.
pub fn rendered(values: &Value) -> Objects {
    render(values).unwrap_or_else(|why| panic!("{why}\n{values:#}"))
}
