//! Wire forms by router. Each field is a rule of some reader; `docs/sinks.md` names whose.

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Maps with names.
    Maps,
    /// Arrays, by position.
    Arrays,
}

/// What follows the delimiter in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayForm {
    /// `[seq, payload]`.
    Plain,
    /// `[topic, seq, payload]`.
    WithTopic,
}

/// Where a line begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// At 0: for readers that take a smaller number for a restart, and want a range whole.
    FromZero,
    /// At the time: for readers that drop every number below the highest one they saw.
    FromClock,
}

/// A wire form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// How events are written.
    pub form: Form,
    /// Each block is an event of its own.
    pub one_block_per_event: bool,
    /// What a salt among the extra keys begins with.
    pub salt_tag: &'static str,
    /// How requests are answered.
    pub replay: ReplayForm,
    /// Where a line begins.
    pub numbers: Numbers,
    /// Topics name the instance and the model.
    pub names_topic: bool,
}

/// A router whose reader is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// llm-d's router.
    LlmD,
    /// Dynamo's indexer and selection service.
    Dynamo,
    /// Whoever reads vLLM.
    Vllm,
    /// AIBrix's gateway.
    Aibrix,
    /// Mooncake's Conductor.
    Conductor,
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 5] =
        [Preset::LlmD, Preset::Dynamo, Preset::Vllm, Preset::Aibrix, Preset::Conductor];

    /// Its name in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::LlmD => "llm-d",
            Preset::Dynamo => "dynamo",
            Preset::Vllm => "vllm",
            Preset::Aibrix => "aibrix",
            Preset::Conductor => "conductor",
        }
    }

    /// The preset of that name.
    pub fn from_name(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.as_str() == name)
    }

    /// What it reads.
    pub fn profile(self) -> Profile {
        let maps = Profile {
            form: Form::Maps,
            one_block_per_event: false,
            salt_tag: "",
            replay: ReplayForm::WithTopic,
            numbers: Numbers::FromZero,
            names_topic: false,
        };
        match self {
            Preset::Vllm | Preset::Conductor => maps,
            Preset::LlmD => Profile { form: Form::Arrays, names_topic: true, ..maps },
            Preset::Dynamo => {
                Profile { salt_tag: "dynamo-cache-salt:", numbers: Numbers::FromClock, ..maps }
            }
            Preset::Aibrix => Profile { form: Form::Arrays, one_block_per_event: true, ..maps },
        }
    }
}
