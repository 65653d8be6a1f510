//! `tidegate topology export`: the topology in a form that others read. Reaches neither broker nor database.
//!
//! May import: `topology`.

use super::{
    super::{failure::Failure, output::Output},
    Files,
};
use crate::{config::Config, topology::export};

/// Arguments of `topology export`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Export {
    #[command(flatten)]
    pub(super) files: Files,
    /// In which form
    #[arg(long, value_enum)]
    format: Format,
    /// Virtual host: in `definitions` each object then names it, for an import that spans them; in `permissions` the
    /// one that they are for [default: /]
    #[arg(long, value_name = "NAME")]
    vhost: Option<String>,
    /// Leave policies out of `definitions`: brokers below 3.12 refuse the one for the consumer timeout
    #[arg(long)]
    no_policies: bool,
}

/// The forms.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// JSON that RabbitMQ imports
    Definitions,
    /// A picture, drawn by many wikis
    Mermaid,
    /// A picture, one file
    Svg,
    /// A page of a wiki
    Markdown,
    /// Calls of rabbitmqctl that give each role its permissions
    Permissions,
}

impl Export {
    /// Runs the command.
    pub(super) fn run(self, config: &Config, output: Output) -> Result<(), Failure> {
        let topology = Files::load(config, output)?;
        let vhost = self.vhost.as_deref();
        let text = match self.format {
            Format::Definitions => {
                let mut objects = topology.objects();
                if self.no_policies {
                    objects.policies.clear();
                }
                export::definitions(&objects, vhost)
            }
            Format::Mermaid => export::mermaid(&topology),
            Format::Svg => export::svg(&topology),
            Format::Markdown => export::markdown(&topology),
            Format::Permissions => export::set_permissions(&topology, vhost),
        };
        output.data(&text)
    }
}
