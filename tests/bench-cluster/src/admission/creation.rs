//! What is added to the creation of a claim by who looks at it: nobody, CEL in the API server, or the door.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use http::StatusCode;
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::Arguments;
use super::door::Door;
use super::policy::{self, POLICIES, Parameter};
use super::reviews::{PROVISIONED, claim};
use crate::percentile::percentile;
use crate::seed::{BY_HAND, FREE_SIZE, free_name, pair_name};

/// How often it is tried whether what was configured is in force, and for how long at most.
const TRIED_EVERY: Duration = Duration::from_millis(100);
const TRIED_MAX: Duration = Duration::from_secs(300);
/// Longest time of an arm in a round: where one creation takes seconds, a few tell.
const ARM_MAX: Duration = Duration::from_secs(30);

/// Who looks at a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Nobody,
    /// CEL, told which volume: what evaluating the rules costs.
    OneVolume,
    /// CEL, with every volume as a parameter: what finds the volume that a claim names.
    EveryVolume,
    Webhook,
}

/// What becomes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Warned,
    /// By this rule.
    Denied(&'static str),
}

/// A claim that is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Provisioned,
    Named,
}

/// The cluster and its door.
struct Site<'a> {
    client: kube::Client,
    door: &'a Door,
}

impl Arm {
    const ALL: [Self; 4] = [Self::Nobody, Self::OneVolume, Self::EveryVolume, Self::Webhook];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::OneVolume => "CEL, told the volume",
            Self::EveryVolume => "CEL, over all volumes",
            Self::Webhook => "webhook",
        }
    }
}

impl Kind {
    const ALL: [Self; 2] = [Self::Provisioned, Self::Named];

    fn name(self) -> &'static str {
        match self {
            Self::Provisioned => "to be provisioned",
            Self::Named => "names a volume",
        }
    }

    fn claim(self) -> Value {
        match self {
            Self::Provisioned => claim(PROVISIONED, "1Gi", json!({})),
            Self::Named => naming(FREE_SIZE, json!({})),
        }
    }
}

/// A claim that names the first free volume.
fn naming(storage: &str, more: Value) -> Value {
    let mut claim = claim(BY_HAND, storage, more);
    if claim["spec"]["volumeName"].is_null() {
        claim["spec"]["volumeName"] = free_name(0).into();
    }
    claim
}

/// A claim that fits its volume but in size, which all who look deny.
fn too_large() -> (Value, Outcome) {
    (naming("11Gi", json!({})), Outcome::Denied("volume-too-small"))
}

/// Claims on which all who look have to agree, whichever volume CEL was told of.
fn agreed() -> [(Value, Outcome); 6] {
    let naming = |more: Value| naming(FREE_SIZE, more);
    [
        (Kind::Provisioned.claim(), Outcome::Passed),
        (Kind::Named.claim(), Outcome::Passed),
        too_large(),
        (naming(json!({"storageClassName": "another"})), Outcome::Denied("class-differs")),
        (naming(json!({"accessModes": ["ReadWriteMany"]})), Outcome::Denied("access-modes-missing")),
        (naming(json!({"volumeMode": "Block"})), Outcome::Denied("volume-mode-differs")),
    ]
}

/// Further ones, on which the webhook has to agree with CEL that sees all volumes.
fn agreed_of_all() -> [(Value, Outcome); 2] {
    let taken = json!({"volumeName": pair_name(0), "storageClassName": "class-0"});
    [(naming("1Gi", json!({})), Outcome::Warned), (naming("1Gi", taken), Outcome::Denied("volume-of-other"))]
}

/// Prints a table: how long a creation takes, by who looks at it.
pub(crate) async fn measure(client: kube::Client, door: &Door, arguments: &Arguments) -> Result<()> {
    let site = Site { client, door };
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(site.client.clone());
    for policy in &POLICIES {
        policies.create(&PostParams::default(), &serde_json::from_value(policy.object())?).await?;
    }
    let mut latencies = vec![Vec::new(); Arm::ALL.len() * Kind::ALL.len()];
    for round in 0..arguments.rounds {
        for (arm, of_kinds) in Arm::ALL.into_iter().zip(latencies.chunks_mut(Kind::ALL.len())) {
            site.set_up(arm).await?;
            if round == 0 {
                site.check(arm).await?;
            }
            site.create(arguments.creations.div_ceil(arguments.rounds), of_kinds).await?;
            site.take_down(arm).await?;
        }
    }
    tell(&mut latencies)
}

fn tell(latencies: &mut [Vec<f64>]) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(
        out,
        "\n| claim | who looks | creations | p50 ms | p99 ms | added at p50 ms | added : the webhook's |"
    )?;
    writeln!(out, "|---|---|--:|--:|--:|--:|--:|")?;
    latencies.iter_mut().for_each(|latencies| latencies.sort_by(f64::total_cmp));
    for (k, kind) in Kind::ALL.into_iter().enumerate() {
        let of_arm = |arm: usize| latencies[arm * Kind::ALL.len() + k].as_slice();
        let p50 = |arm: usize| percentile(of_arm(arm), 500);
        let added = |arm: usize| p50(arm) - p50(0);
        let of_webhook = added(Arm::ALL.len() - 1);
        for (i, arm) in Arm::ALL.into_iter().enumerate() {
            let (kind, who, number, p99) =
                (kind.name(), arm.name(), of_arm(i).len(), percentile(of_arm(i), 990));
            let (p50, added) = (p50(i), added(i));
            let ratio = if arm == Arm::Nobody { String::new() } else { format!("{:.2}", added / of_webhook) };
            writeln!(out, "| {kind} | {who} | {number} | {p50:.2} | {p99:.2} | {added:.2} | {ratio} |")?;
        }
    }
    Ok(())
}

impl Site<'_> {
    /// Has claims looked at, and waits until the API server does so.
    async fn set_up(&self, arm: Arm) -> Result<()> {
        match arm {
            Arm::Nobody => return Ok(()),
            Arm::OneVolume => self.bind_policies(Some(&free_name(0))).await?,
            Arm::EveryVolume => self.bind_policies(None).await?,
            Arm::Webhook => {
                let configuration = serde_json::from_value(self.configuration())?;
                self.webhooks().create(&PostParams::default(), &configuration).await?;
            }
        }
        let (claim, outcome) = too_large();
        self.until(arm, &claim, outcome).await
    }

    /// Sees that claims are judged as all who look have to.
    async fn check(&self, arm: Arm) -> Result<()> {
        let of_all = matches!(arm, Arm::EveryVolume | Arm::Webhook).then(agreed_of_all);
        for (claim, outcome) in agreed().into_iter().chain(of_all.into_iter().flatten()) {
            let outcome = if arm == Arm::Nobody { Outcome::Passed } else { outcome };
            let found = self.attempt(&claim).await?;
            ensure!(found == outcome, "{arm:?}: {found:?}, and not {outcome:?}: {claim}");
        }
        Ok(())
    }

    async fn take_down(&self, arm: Arm) -> Result<()> {
        let now = DeleteParams::default();
        match arm {
            Arm::Nobody => {}
            Arm::OneVolume | Arm::EveryVolume => {
                for policy in &POLICIES {
                    self.bindings().delete(policy.name, &now).await?;
                }
            }
            Arm::Webhook => drop(self.webhooks().delete("bindery", &now).await?),
        }
        self.until(Arm::Nobody, &too_large().0, Outcome::Passed).await
    }

    async fn bind_policies(&self, volume: Option<&str>) -> Result<()> {
        for policy in &POLICIES {
            let parameter = match policy.parameter {
                Parameter::Volume => volume,
                Parameter::Class => volume.map(|_| PROVISIONED),
            };
            let binding = serde_json::from_value(policy.binding(parameter))?;
            self.bindings().create(&PostParams::default(), &binding).await?;
        }
        Ok(())
    }

    /// Creates claims, of each kind so many, one after the other; answers seconds of each by kind.
    async fn create(&self, number: usize, of_kinds: &mut [Vec<f64>]) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(self.client.clone());
        let began = Instant::now();
        for _ in 0..number {
            for (kind, latencies) in Kind::ALL.into_iter().zip(of_kinds.iter_mut()) {
                let claim = serde_json::from_value(kind.claim())?;
                let sent = Instant::now();
                claims.create(&PostParams::default(), &claim).await?;
                latencies.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            if began.elapsed() > ARM_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Tries a claim until that becomes of it.
    async fn until(&self, arm: Arm, claim: &Value, outcome: Outcome) -> Result<()> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(TRIED_EVERY);
        loop {
            ticks.tick().await;
            let found = self.attempt(claim).await;
            if matches!(&found, Ok(found) if *found == outcome) {
                return Ok(());
            }
            let is_late = began.elapsed() > TRIED_MAX;
            ensure!(!is_late, "{arm:?} is not in force: {found:?}, and not {outcome:?}: {claim}");
        }
    }

    /// What would become of a claim.
    ///
    /// # Errors
    ///
    /// Nobody has looked, or no rule denies it that all who look know.
    async fn attempt(&self, claim: &Value) -> Result<Outcome> {
        let mut claim = claim.clone();
        claim["apiVersion"] = "v1".into();
        claim["kind"] = "PersistentVolumeClaim".into();
        let request = http::Request::post("/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(claim.to_string().into_bytes().into())?;
        let (head, body) = self.client.send(request).await.context("a dry run failed")?.into_parts();
        let body = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        if head.status == StatusCode::CREATED {
            let is_warned = head.headers.contains_key(http::header::WARNING);
            return Ok(if is_warned { Outcome::Warned } else { Outcome::Passed });
        }
        let rule = policy::denying().find(|rule| text.contains(rule));
        rule.map(Outcome::Denied).with_context(|| format!("a dry run was answered {}: {text}", head.status))
    }

    /// The webhook with the match conditions of the chart that read the object, and failure policy Fail: a
    /// review that fails is no review.
    fn configuration(&self) -> Value {
        let conditions = [
            ("not-in-exempt-namespace", "!(request.namespace in ['kube-system'])"),
            ("not-deleting", "!has(object.metadata.deletionTimestamp)"),
            (
                "may-matter",
                "request.operation == \"CREATE\" || \
                 object.metadata.?annotations[?\"pv.kubernetes.io/bind-completed\"] != \
                 oldObject.metadata.?annotations[?\"pv.kubernetes.io/bind-completed\"] || \
                 (oldObject.metadata.?annotations[?\"pv.kubernetes.io/bind-completed\"].hasValue() ? \
                 object.spec.?volumeName != oldObject.spec.?volumeName : object.spec != oldObject.spec)",
            ),
        ];
        let conditions = conditions.map(|(name, expression)| json!({"name": name, "expression": expression}));
        let authorities = ByteString(self.door.authorities.clone());
        json!({
            "metadata": {"name": "bindery"},
            "webhooks": [{
                "name": "claims.bindery.dev",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "url": format!("https://127.0.0.1:{}/validate", self.door.port),
                    "caBundle": authorities,
                },
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 3,
                "matchConditions": conditions,
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["persistentvolumeclaims"], "scope": "Namespaced",
                }],
            }],
        })
    }

    fn webhooks(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    fn bindings(&self) -> Api<ValidatingAdmissionPolicyBinding> {
        Api::all(self.client.clone())
    }
}
