package inmemory

import (
	"time"

	"github.com/reprise-go/reprise/core"
)

// The profiles below have the capabilities of real messaging systems, so that handlers
// can be tested against them. They cover capabilities, limits and locks. They imitate
// neither speed nor outages nor duplicates. Nothing here is durable, so
// core.ProvisionAuto creates queues here that it leaves to others on a broker. The
// adapters' own Capabilities are authoritative. Depth and ListQueues work with each; where the
// messaging system has no Browse or Take, a second transport with the same Config.Broker and all
// capabilities can look into the queues.
//
// Each function returns a new Config, which may be changed before New.

// LikeSQS has the capabilities of Amazon SQS with SNS: no atomic sends, no dead-lettering
// by the receiver, batches of 10, messages of 640 KiB (in base64 and with their headers
// they must fit into 1 MiB), locks (the visibility timeout) of 30 seconds that can be
// renewed for 12 hours, delays of 10 years at most (sqs.Config.MaxDelay), and a count that rises with every receive. Every queue keeps
// groups in order, as only FIFO queues of SQS do. An endpoint on SQS without queues for
// long delays (sqs.Config.NoLongDelays) has a MaxDelay of 15 minutes.
func LikeSQS() Config {
	return Config{
		Capabilities: &core.Capabilities{
			Transactions: []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly},
			Abilities: core.Abilities{
				DelayedDelivery:  true,
				PublishSubscribe: true,
				TimeToBeReceived: true,
				GroupOrder:       true,
			},
			Limits: core.Limits{
				MaxDelay:        10 * 8766 * time.Hour,
				DelayPrecision:  time.Second,
				MaxLockTime:     12 * time.Hour,
				MaxReceiveBatch: 10,
				MaxUnsettled:    120_000,
				MaxMessageBytes: 640 << 10,
				MaxHeaderBytes:  64 << 10,
			},
			Guarantees: core.Guarantees{
				NativeDeliveryCount: true,
				CountsReleases:      true,
				ConfirmsSettlement:  true,
				MayDuplicate:        true,
			},
		},
		LockDuration: 30 * time.Second,
	}
}

// LikeAzureServiceBus has the capabilities of Azure Service Bus, standard tier, through
// its Go client: no atomic sends, dead-letter queues, 240 KiB messages with 30 KiB of
// headers, and locks of one minute. Every queue keeps groups in order, as only queues
// with sessions of Azure Service Bus do.
func LikeAzureServiceBus() Config {
	return Config{
		Capabilities: &core.Capabilities{
			Transactions: []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly},
			Abilities: core.Abilities{
				DelayedDelivery:  true,
				PublishSubscribe: true,
				TimeToBeReceived: true,
				DeadLetter:       true,
				GroupOrder:       true,
				Prefetch:         true,
				Browse:           true,
			},
			Limits: core.Limits{
				DelayPrecision:  time.Second,
				MaxMessageBytes: 240 << 10,
				MaxHeaderBytes:  30 << 10,
			},
			Guarantees: core.Guarantees{NativeDeliveryCount: true, ConfirmsSettlement: true},
		},
		LockDuration: time.Minute,
	}
}

// LikeRabbitMQ has the capabilities of RabbitMQ with quorum queues: only
// TransactionReceiveOnly, delays of at most 8.5 years, 16 MiB messages with 64 KiB of
// headers, settlements that are not confirmed, deliveries without a renewable lock that
// are requeued after 30 minutes (consumer_timeout), and a count that rises with every
// return. It does not refuse things that no capability covers: a delay together with a
// time to be received, and names that the broker would not accept.
func LikeRabbitMQ() Config {
	return Config{
		Capabilities: &core.Capabilities{
			Transactions: []core.TransactionMode{core.TransactionReceiveOnly},
			Abilities: core.Abilities{
				DelayedDelivery:  true,
				PublishSubscribe: true,
				BaseTopics:       true,
				TimeToBeReceived: true,
				Prefetch:         true,
			},
			Limits: core.Limits{
				MaxDelay:          (1<<28 - 1) * time.Second,
				DelayPrecision:    2 * time.Second,
				MaxLockTime:       30 * time.Minute,
				MaxMessageBytes:   16 << 20,
				MaxHeaderBytes:    64 << 10,
				MaxHeaderKeyBytes: 255,
			},
			Guarantees: core.Guarantees{NativeDeliveryCount: true, CountsReleases: true},
		},
	}
}

// LikeRabbitMQClassic is LikeRabbitMQ with classic queues, which keep no delivery count:
// each receiver counts alone.
func LikeRabbitMQClassic() Config {
	cfg := LikeRabbitMQ()
	cfg.Capabilities.NativeDeliveryCount = false
	cfg.Capabilities.CountsReleases = false
	return cfg
}

// LikePostgreSQL has the capabilities of queue tables in PostgreSQL: every transaction
// mode, delays of any length, 256 MiB messages and an exact delivery count.
func LikePostgreSQL() Config {
	able := Everything()
	able.DeadLetter = false
	able.GroupOrder = false
	able.DelayPrecision = time.Second
	able.MaxMessageBytes = 256 << 20
	able.Prefetch, able.AtomicLeases = true, true
	return Config{Capabilities: &able}
}
