// Package properties has the properties of queues, topics and subscriptions, with their defaults and limits.
package properties

import "time"

// MaxTimeToLive is the time to live of messages that never expire: the largest TimeSpan of .NET
// in milliseconds, P10675199DT2H48M5.477S.
const MaxTimeToLive = 9223372036854775807 * time.Nanosecond

// A Status decides which operations an entity accepts (page entity-suspend).
type Status string

// The values of Status. The zero value is StatusActive.
const (
	StatusActive          Status = "Active"
	StatusDisabled        Status = "Disabled"
	StatusSendDisabled    Status = "SendDisabled"
	StatusReceiveDisabled Status = "ReceiveDisabled"
)

// A Tier limits the sizes of messages and the number of their deliveries.
type Tier string

// The values of Tier. The zero value is Standard.
const (
	Standard Tier = "Standard"
	Premium  Tier = "Premium"
)

// Queue are the settings of a queue. The zero value has the service's defaults.
type Queue struct {
	LockDuration                     time.Duration // default 1 minute, at most 5 minutes
	MaxDeliveryCount                 int32         // default 10
	DefaultMessageTimeToLive         time.Duration // default MaxTimeToLive
	DeadLetteringOnMessageExpiration bool
	RequiresSession                  bool
	RequiresDuplicateDetection       bool
	DuplicateDetectionWindow         time.Duration // default 10 minutes, 20 seconds to 7 days
	ForwardTo                        string        // path of a queue or topic
	ForwardDeadLetteredMessagesTo    string        // path of a queue or topic
	Status                           Status
	AutoDeleteOnIdle                 time.Duration // default never, at least 5 minutes
	EnablePartitioning               bool
	MaxSizeInMegabytes               int32 // default 1024
	MaxMessageSizeInKilobytes        int64 // default 256 (Standard) or 1024 (Premium)
	DisableBatchedOperations         bool
	UserMetadata                     string
}

// Topic are the settings of a topic. The zero value has the service's defaults.
type Topic struct {
	DefaultMessageTimeToLive   time.Duration // default MaxTimeToLive
	RequiresDuplicateDetection bool
	DuplicateDetectionWindow   time.Duration // default 10 minutes, 20 seconds to 7 days
	Status                     Status
	AutoDeleteOnIdle           time.Duration // default never, at least 5 minutes
	EnablePartitioning         bool
	SupportOrdering            bool
	MaxSizeInMegabytes         int32 // default 1024
	MaxMessageSizeInKilobytes  int64 // default 256 (Standard) or 1024 (Premium)
	DisableBatchedOperations   bool
	UserMetadata               string
}

// Subscription are the settings of a subscription. The zero value has the service's
// defaults.
type Subscription struct {
	LockDuration                     time.Duration // default 1 minute, at most 5 minutes
	MaxDeliveryCount                 int32         // default 10
	DefaultMessageTimeToLive         time.Duration // default MaxTimeToLive
	DeadLetteringOnMessageExpiration bool
	DropOnFilterErrors               bool // default false: they dead-letter the message
	RequiresSession                  bool
	ForwardTo                        string // path of a queue or topic
	ForwardDeadLetteredMessagesTo    string // path of a queue or topic
	Status                           Status
	AutoDeleteOnIdle                 time.Duration // default never, at least 5 minutes
	DisableBatchedOperations         bool
	UserMetadata                     string
}
