//! `kvbridge bus permissions`: users of a nats-server, each with the least that its role needs.

use std::collections::BTreeSet;

use clap::builder::PossibleValuesParser;

use super::{CliError, ConfigArgs, Console, Environment, Exit, bus::BusError, examples};
use crate::{
    bus::nats::{
        Plan,
        permissions::{Permissions, Role, permissions},
    },
    config::{BusConfig, BusFile, Flags},
};

/// Makes the configuration one of NATS where it is none: nothing is connected to.
const NOWHERE: &str = "nats://127.0.0.1:4222";

/// Print the least that users need, for nats-server's configuration; connects to nothing
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = examples::PERMISSIONS)]
pub struct PermissionsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// For a user of this role: bridge, index or viewer; repeatable
    #[arg(long = "role", value_name = "ROLE", required = true,
        value_parser = PossibleValuesParser::new(Role::ALL.map(Role::as_str)))]
    roles: Vec<String>,
    /// Of this model alone; repeatable [default: those of the sources, else all]
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
}

impl PermissionsArgs {
    pub(super) fn execute(
        self,
        environment: &Environment,
        console: &mut Console<'_>,
    ) -> Result<Exit, CliError> {
        let mut config = self.config.load(environment, Flags::default())?;
        if matches!(config.bus, BusConfig::Embedded) {
            let server = BusFile { url: Some(NOWHERE.to_owned()), ..BusFile::default() };
            config = self.config.load(environment, Flags { server, ..Flags::default() })?;
        }
        let BusConfig::Nats(nats) = &config.bus else { return Err(BusError::NotNats.into()) };
        let mut models: BTreeSet<String> = self.models.into_iter().collect();
        if models.is_empty() {
            models.extend(config.sources.iter().map(|source| source.replica.model.clone()));
        }
        let models: Vec<String> = models.into_iter().collect();
        let plan = Plan::new(&nats.streams);
        for line in head(&models, &nats.inbox) {
            console.line(&line)?;
        }
        console.line("authorization {\n  users = [")?;
        for role in
            Role::ALL.into_iter().filter(|role| self.roles.iter().any(|r| r == role.as_str()))
        {
            let permissions = permissions(role, &plan, &models, &nats.inbox);
            user(role, &permissions).iter().try_for_each(|line| console.line(line))?;
        }
        console.line("  ]\n}")?;
        console.out.flush()?;
        Ok(Exit::Ok)
    }
}

fn head(models: &[String], inbox: &str) -> Vec<String> {
    let mut lines = vec![
        "# Passwords are read from the environment of nats-server.".to_owned(),
        format!("# Users that share the inbox prefix {inbox} can read each other's answers:"),
        "# with a bus.inbox of its own in its configuration, and here, none can.".to_owned(),
        "# Whoever may create consumers may have messages delivered anywhere in its account:"
            .to_owned(),
        "# what must not be touched at all belongs into another account.".to_owned(),
    ];
    if models.is_empty() {
        lines.push("# Without --model, * stands for every stream of the account.".to_owned());
    }
    lines
}

fn user(role: Role, permissions: &Permissions) -> Vec<String> {
    let word = role.as_str();
    let mut lines = vec![
        "    {".to_owned(),
        format!("      user: \"kvbridge-{word}\""),
        format!("      password: $KVBRIDGE_{}_PASSWORD", word.to_uppercase()),
        "      permissions: {".to_owned(),
    ];
    for (what, subjects) in
        [("publish", &permissions.publish), ("subscribe", &permissions.subscribe)]
    {
        lines.push(format!("        {what}: {{ allow: ["));
        lines.extend(subjects.iter().map(|subject| format!("          \"{subject}\"")));
        lines.push("        ] }".to_owned());
    }
    if permissions.answers {
        lines.push("        allow_responses: { max: 1, expires: \"1m\" }".to_owned());
    }
    lines.extend(["      }".to_owned(), "    }".to_owned()]);
    lines
}
