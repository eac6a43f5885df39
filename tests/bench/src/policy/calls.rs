//! One call of a policy about 1,000 volumes.

use anyhow::{Context as _, Result, ensure};
use bindery_core::Quantity;
use bindery_host::ComponentMatcher;
use bindery_policy::{Candidates, ClaimView, Matcher as _, PolicyFault};
use serde_json::{Value, json};

use super::Arguments;
use crate::measure::{self, Figures};

/// Volumes of a call.
const ROWS: u32 = 1_000;
/// Values of each column. They are numbers, because the policy in Python reads percentages.
const VALUES: [&str; 8] = ["0", "10", "20", "30", "40", "50", "60", "70"];
/// The settings of the rule: half of the volumes are rejected.
pub(super) const TIERS: &str = r#"{"tiers":["0","20","40","60"]}"#;

/// What was measured.
pub(super) struct Measured {
    pub(super) figures: Figures,
    pub(super) fuel_per_row: u64,
}

/// Measures a policy that judges columns. One call takes `times` as long as one of a policy in Rust.
pub(super) fn by_columns(
    matcher: &ComponentMatcher,
    settings: &str,
    arguments: &Arguments,
    times: u32,
) -> Result<Measured> {
    let metadata = matcher.metadata();
    let claim = ClaimView {
        request: Quantity::bytes(1),
        facts: metadata.claim_facts.iter().map(|_| Some(VALUES[0].into())).collect(),
    };
    let value = |row: u32| 1 + row % VALUES.len() as u32;
    let rows = Candidates {
        whole: (0..u64::from(ROWS)).map(|row| (row + 1) << 30).collect(),
        nanos: vec![0; ROWS as usize],
        texts: VALUES.map(Into::into).into(),
        columns: metadata.columns.iter().map(|_| (0..ROWS).map(value).collect()).collect(),
        spread: Vec::new(),
    };
    let judge = || matcher.judge(settings, &claim, &rows);
    let verdicts = judge()?.verdicts(metadata, ROWS as usize)?;
    ensure!(verdicts.len() == ROWS as usize, "the policy judges {} of {ROWS} rows", verdicts.len());
    measured(matcher, arguments, times, || judge().map(drop))
}

/// Measures the rule of a policy that has it in JSON: each volume is written as JSON, and judged by a call of
/// its own.
pub(super) fn in_json(matcher: &ComponentMatcher, arguments: &Arguments) -> Result<Measured> {
    let volumes: Vec<Value> = (0..ROWS).map(object).collect();
    let settings: Value = serde_json::from_str(TIERS)?;
    let judge = |object: &Value| {
        let review = json!({"request": {"operation": "CREATE", "object": object}, "settings": settings});
        matcher.check(&review.to_string())
    };
    for (row, object) in volumes.iter().enumerate() {
        let verdict = judge(object)?.err().context("the policy gives no verdict in JSON")?;
        let verdict: Value = serde_json::from_str(&verdict)?;
        ensure!(
            verdict["allowed"] == (row % 2 == 0),
            "the rule in JSON judges volume {row} otherwise: {verdict}"
        );
    }
    measured(matcher, arguments, 500, || volumes.iter().try_for_each(|object| judge(object).map(drop)))
}

fn measured(
    matcher: &ComponentMatcher,
    arguments: &Arguments,
    times: u32,
    call: impl Fn() -> Result<(), PolicyFault>,
) -> Result<Measured> {
    let before = matcher.fuel();
    call()?;
    let fuel_per_row = (matcher.fuel() - before) / u64::from(ROWS);
    let round = |_| measure::round(arguments.calls(times), &[()], |()| call().is_ok());
    let rounds: Vec<_> = (0..arguments.rounds).map(round).collect();
    Ok(Measured { figures: Figures::of(&rounds), fuel_per_row })
}

/// A volume as the API server has it.
fn object(number: u32) -> Value {
    let change = json!({
        "metadata": {
            "uid": format!("00000000-0000-0000-0000-{number:012}"),
            "resourceVersion": number.to_string(),
            "creationTimestamp": "2026-11-25T09:00:00Z",
            "labels": {"bindery.dev/tier": VALUES[number as usize % VALUES.len()]},
            "annotations": {"pv.kubernetes.io/provisioned-by": "disks.example.com"},
            "finalizers": ["kubernetes.io/pv-protection", "external-attacher/disks-example-com"],
        },
        "spec": {
            "capacity": {"storage": format!("{}Gi", number + 1)},
            "csi": {
                "driver": "disks.example.com",
                "volumeHandle": format!("disk-{number}"),
                "fsType": "ext4",
                "volumeAttributes": {"storage.kubernetes.io/csiProvisionerIdentity": "disks-1"},
            },
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]},
            ]}]}},
        },
        "status": {"phase": "Available", "lastPhaseTransitionTime": "2026-11-25T09:00:00Z"},
    });
    bindery_kit::json::volume(&format!("volume-{number}"), change)
}
