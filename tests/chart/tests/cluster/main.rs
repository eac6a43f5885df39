//! The chart on a real API server: it takes every object, asks Bindery only what may matter, and grants what the roles say.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod door;
mod rights;
mod site;

use bindery_chart::{rendered, sets};

use self::site::Site;

/// Every field is known, every value valid, every expression compiles: more than a schema can say.
#[tokio::test]
async fn the_api_server_takes_every_object() {
    let site = Site::start().await;
    site.define().await;
    for (name, values) in sets() {
        for (object, content) in rendered(&values).iter() {
            let answer = site.create(content, "dryRun=All&fieldValidation=Strict").await;
            answer.unwrap_or_else(|why| panic!("{name}: {object}: {why}"));
        }
    }
}
