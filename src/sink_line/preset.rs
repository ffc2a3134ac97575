//! Wire forms by router. Each field is a rule of some reader; `docs/sinks.md` names whose.

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Maps with names.
    Maps,
    /// Arrays, by position.
    Arrays,
}

/// What batches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Msgpack, in messages of ZeroMQ.
    Msgpack,
    /// Protobuf, in a stream of gRPC that says where it begins.
    #[cfg(feature = "sink-smg")]
    Protobuf,
}

impl Encoding {
    /// Whether readers open a stream.
    pub fn is_streamed(self) -> bool {
        match self {
            Encoding::Msgpack => false,
            #[cfg(feature = "sink-smg")]
            Encoding::Protobuf => true,
        }
    }
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
    /// What batches are.
    pub encoding: Encoding,
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
    /// The topic of a replica; see [`topic_of`](super::topic_of).
    pub topic: &'static str,
}

/// Which forms of a hash a reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashForms {
    /// Numbers of 9 bytes, or byte strings.
    WideOrBytes,
    /// Numbers alone.
    Numbers,
    /// Numbers from 0 on, or byte strings of 8 bytes and more.
    UnsignedOrBytes,
    /// Any of them.
    Any,
}

/// What a reader makes of topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topics {
    /// Nothing: all that comes over a socket is one replica's.
    Nothing,
    /// It tells replicas apart by them.
    Replicas,
    /// It does, and wants three parts, of which the second is the replica.
    Named,
}

/// What a router's reader takes, as it was read in its code. Beside [`Profile`], which is what a
/// sink writes, so that one can be held against the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// What batches are.
    pub encoding: Encoding,
    /// Events in another form lose their batch; absent = either is read.
    pub form: Option<Form>,
    /// The fewest elements of a batch.
    pub elements_min: usize,
    /// Hashes in another form lose their batch.
    pub hashes: HashForms,
    /// What topics are to it.
    pub topics: Topics,
    /// All blocks of an event are hashed from the event's parent.
    pub one_block_per_event: bool,
    /// What a salt must begin with to be one; absent = any text.
    pub salt_tag: Option<&'static str>,
    /// What a smaller number is.
    pub numbers: Numbers,
    /// Hashes of its own are computed from tokens; an engine's hash is only a handle.
    pub hashes_tokens: bool,
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
    /// SMG's gateway.
    #[cfg(feature = "sink-smg")]
    Smg,
}

/// How many presets this build has.
const COUNT: usize = 5 + cfg!(feature = "sink-smg") as usize;

impl Preset {
    /// All of them.
    pub const ALL: [Preset; COUNT] = [
        Preset::LlmD,
        Preset::Dynamo,
        Preset::Vllm,
        Preset::Aibrix,
        Preset::Conductor,
        #[cfg(feature = "sink-smg")]
        Preset::Smg,
    ];

    /// The preset that only some builds have.
    pub const SMG: &str = "smg";

    /// The topic of a replica where sockets are shared.
    pub const SHARED_TOPIC: &str = "kv@{instance}@{model}";

    /// Its name in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Preset::LlmD => "llm-d",
            Preset::Dynamo => "dynamo",
            Preset::Vllm => "vllm",
            Preset::Aibrix => "aibrix",
            Preset::Conductor => "conductor",
            #[cfg(feature = "sink-smg")]
            Preset::Smg => Preset::SMG,
        }
    }

    /// The preset of that name.
    pub fn from_name(name: &str) -> Option<Preset> {
        Preset::ALL.into_iter().find(|preset| preset.as_str() == name)
    }

    /// What it reads.
    pub fn profile(self) -> Profile {
        let maps = Profile {
            encoding: Encoding::Msgpack,
            form: Form::Maps,
            one_block_per_event: false,
            salt_tag: "",
            replay: ReplayForm::WithTopic,
            numbers: Numbers::FromZero,
            topic: "",
        };
        match self {
            Preset::Vllm | Preset::Conductor => maps,
            Preset::LlmD => Profile { form: Form::Arrays, topic: Preset::SHARED_TOPIC, ..maps },
            Preset::Dynamo => {
                Profile { salt_tag: "dynamo-cache-salt:", numbers: Numbers::FromClock, ..maps }
            }
            Preset::Aibrix => Profile { form: Form::Arrays, one_block_per_event: true, ..maps },
            #[cfg(feature = "sink-smg")]
            Preset::Smg => {
                Profile { encoding: Encoding::Protobuf, numbers: Numbers::FromClock, ..maps }
            }
        }
    }

    /// What its reader takes.
    pub fn needs(self) -> Needs {
        let any = Needs {
            encoding: Encoding::Msgpack,
            form: None,
            elements_min: 2,
            hashes: HashForms::Any,
            topics: Topics::Nothing,
            one_block_per_event: false,
            salt_tag: None,
            numbers: Numbers::FromZero,
            hashes_tokens: true,
        };
        match self {
            Preset::LlmD => Needs { hashes: HashForms::WideOrBytes, topics: Topics::Named, ..any },
            Preset::Dynamo => Needs {
                elements_min: 3,
                hashes: HashForms::Numbers,
                salt_tag: Some("dynamo-cache-salt:"),
                numbers: Numbers::FromClock,
                ..any
            },
            // Whoever it is: some trust the engine's hash, some subscribe by topic.
            Preset::Vllm => Needs { hashes_tokens: false, topics: Topics::Replicas, ..any },
            Preset::Aibrix => Needs { form: Some(Form::Arrays), one_block_per_event: true, ..any },
            Preset::Conductor => Needs {
                form: Some(Form::Maps),
                elements_min: 3,
                hashes: HashForms::UnsignedOrBytes,
                hashes_tokens: false,
                ..any
            },
            #[cfg(feature = "sink-smg")]
            Preset::Smg => {
                Needs { encoding: Encoding::Protobuf, numbers: Numbers::FromClock, ..any }
            }
        }
    }
}
