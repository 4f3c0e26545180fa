//! `--image-repository` and `--image-tag` where no cluster is asked: those of the chart's own image.

use clap::Args;

use super::package::set_flag_value;
use crate::chart::{Kind, ValuesBuilder};
use crate::cli::output::error::CliError;

/// Flags about the image of the service's own program.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OwnImageArgs {
    /// Image repository of the component [default: that of the chart]
    #[arg(long, value_name = "REPOSITORY")]
    image_repository: Option<String>,

    /// Image tag of the component; it also chooses the service version [default: the service version]
    #[arg(long, value_name = "TAG")]
    pub(crate) image_tag: Option<String>,
}

impl OwnImageArgs {
    /// Returns whether none was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.image_repository.is_none() && self.image_tag.is_none()
    }

    /// Lays them over the values of a chart.
    pub(crate) fn apply_own_image(&self, kind: Kind, builder: ValuesBuilder) -> Result<ValuesBuilder, CliError> {
        let image = match kind {
            Kind::ControlPlane => "scheduler.image",
            Kind::Agent => "image",
        };
        let repository = self.image_repository.as_deref();
        let builder = set_flag_value(builder, "--image-repository", &format!("{image}.repository"), repository)?;
        set_flag_value(builder, "--image-tag", &format!("{image}.tag"), self.image_tag.as_deref())
    }
}
