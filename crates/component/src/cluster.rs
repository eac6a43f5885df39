//! The cluster as the host's answers.

use bindery_core::{Answer, Cluster, Question, Stop};

use crate::bindings::bindery::policy::cluster;
use crate::carry::{Carry, IllTyped};

/// Asks the host. A question that the host does not answer ends the call there, so no error ever comes back.
pub(crate) struct Host;

impl Cluster for Host {
    fn ask(&mut self, question: Question) -> Result<Answer, Stop> {
        ask(&question).map_err(|IllTyped(what)| Stop::Nonsense(what))
    }
}

fn ask(question: &Question) -> Result<Answer, IllTyped> {
    Ok(match question {
        Question::Claim(source, key) => {
            Answer::Claim(Carry::lift(cluster::get_claim(source.lower(), &key.lower()))?)
        }
        Question::Volume(source, name) => {
            Answer::Volume(Carry::lift(cluster::get_volume(source.lower(), name))?)
        }
        Question::Pods(key) => Answer::Pods(Carry::lift(cluster::list_pods(&key.lower()))?),
        Question::Node(name) => Answer::Node(Carry::lift(cluster::get_node(name))?),
        Question::Class(name) => Answer::Class(Carry::lift(cluster::get_class(name))?),
        Question::DefaultClasses => Answer::DefaultClasses(Carry::lift(cluster::list_default_classes())?),
        Question::Plugin(name) => Answer::Plugin(Carry::lift(cluster::get_plugin(name))?),
        Question::PluginForVolume(volume) => Answer::PluginMatch(Carry::lift(cluster::match_plugin(volume))?),
        Question::PluginReady(name, operation) => {
            Answer::Ready(Carry::lift(cluster::check_plugin(name, operation.lower()))?)
        }
        Question::Migration(plugin) => Answer::Migration(Carry::lift(cluster::get_migration(plugin))?),
        Question::DynamicProvisioning => Answer::DynamicProvisioning(cluster::has_dynamic_provisioning()),
        Question::Operation(kind, uid) => {
            Answer::Operation(Carry::lift(cluster::get_operation_state(kind.lower(), &uid.0))?)
        }
        Question::AccessSets(containing) => {
            Answer::AccessSets(Carry::lift(cluster::list_access_sets(containing.lower()))?)
        }
        Question::Candidates { query, after, limit } => {
            Answer::Page(Carry::lift(cluster::list_candidates(&query.lower(), after.lower(), *limit))?)
        }
        Question::ReservedFor { key, uid } => {
            Answer::Reserved(Carry::lift(cluster::list_reserved(&key.lower(), &uid.0))?)
        }
        Question::Identify(handle) => Answer::Identity(Carry::lift(cluster::identify(handle.lower()))?),
        Question::Describe(handle) => Answer::Described(Carry::lift(cluster::describe(handle.lower()))?),
        Question::Tallies(query) => Answer::Tallies(Carry::lift(cluster::list_tallies(&query.lower()))?),
        Question::Verdict(volume) => Answer::Verdict(Carry::lift(cluster::get_verdict(volume))?),
        Question::Reclaim(volume) => Answer::Reclaim(Carry::lift(cluster::get_reclaim(volume))?),
    })
}
