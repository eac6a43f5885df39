//! k9s on the playground, in a terminal: `cargo xtask soak k9s` runs it, because k9s takes minutes to build.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "playground/running.rs"]
mod running;
mod support;

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, Stdio};

use running::Playground;
use rustix::process::Signal;

const ROWS: NonZero<u16> = NonZero::new(50).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(200).unwrap();
/// After these seconds k9s is ended, and what it has not drawn until then is missing.
const SECONDS_MAX: &str = "300";

/// k9s in a terminal.
struct K9s {
    script: Child,
    screen: vt100::Parser,
}

impl K9s {
    /// Starts k9s with the claims of all namespaces.
    fn start(playground: &Playground) -> Self {
        let home = playground.home();
        let program =
            std::env::var_os("BINDERY_K9S").expect("BINDERY_K9S is not set: run `cargo xtask soak k9s`");
        // Without this it asks GitHub for its newest version.
        home.file("k9s/config.yaml", "k9s:\n  skipLatestRevCheck: true\n");
        let shown =
            format!("stty rows {ROWS} cols {COLUMNS}; exec \"$BINDERY_K9S\" --all-namespaces --command pvc");
        let mut command = home.program("timeout");
        command.args([
            SECONDS_MAX,
            "script",
            "--quiet",
            "--flush",
            "--return",
            "--command",
            &shown,
            "/dev/null",
        ]);
        command.env("BINDERY_K9S", program).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("KUBECONFIG", home.path().join("config")).env("K9S_CONFIG_DIR", home.path().join("k9s"));
        command.env("TERM", "xterm-256color").env("SHELL", "/bin/sh");
        let script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self { script, screen: vt100::Parser::new(ROWS, COLUMNS, 0) }
    }

    /// Reads until the screen has all of these texts.
    fn shows(&mut self, texts: &[&str]) {
        let output = self.script.stdout.as_mut().unwrap();
        let mut bytes = [0; 4096];
        loop {
            let screen = self.screen.screen().contents();
            if texts.iter().all(|text| screen.contains(text)) {
                return;
            }
            let length = output.read(&mut bytes).unwrap();
            assert_ne!(length, 0, "k9s ended, and never showed {texts:?}:\n{screen}");
            self.screen.process(&bytes[..length]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.script.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Ends k9s, which must succeed.
    fn quit(mut self) {
        self.press(":quit\r");
        std::io::copy(self.script.stdout.as_mut().unwrap(), &mut std::io::sink()).unwrap();
        assert!(self.script.wait().unwrap().success());
    }
}

#[test]
fn k9s_opens_and_lists_and_describes_claims_and_volumes() {
    let playground = Playground::start(&["--example", "static-binding"]);
    let mut k9s = K9s::start(&playground);
    k9s.shows(&["persistentvolumeclaims(all)[3]", "archive", "Pending", "notes", "reports", "Bound"]);
    // The first row is selected.
    k9s.press("d");
    k9s.shows(&["Describe(default/archive)", "no persistent volumes available for this claim"]);
    k9s.press("\u{1b}");
    k9s.shows(&["persistentvolumeclaims(all)[3]"]);
    k9s.press(":pv\r");
    k9s.shows(&["RECLAIM POLICY", "default/reports", "default/notes", "medium", "Available"]);
    k9s.press("d");
    k9s.shows(&["Name:            large", "Claim:           default/reports"]);
    k9s.quit();
    playground.stop(Signal::INT);
}
