package inmemory

import (
	"time"

	"github.com/reprise-go/reprise/core"
)

// The profiles below are what real messaging systems can do, so that handlers
// can be tested against the abilities they will meet. They are about
// capabilities, limits and locks; they imitate neither speed nor outages nor
// duplicates, and nothing here is durable, so that core.ProvisionAuto creates
// queues here that it leaves to somebody else on a broker. The adapters' own
// Capabilities are authoritative.
//
// Each returns a Config of its own, to be changed at will before Open.

// LikeSQS is as able as Amazon SQS with SNS: no atomic sends, no dead-lettering by the
// receiver, batches of 10, messages of 640 KiB (in base64 and with their headers they must fit into 1 MiB),
// locks (the visibility timeout) of 30 seconds that can be renewed for 12 hours, and a count
// that rises with every receive. Every queue keeps groups in order here, as FIFO queues do there.
// An endpoint there that does without queues for long delays (sqs.Config.NoLongDelays)
// has a MaxDelay of 15 minutes.
func LikeSQS() Config {
	return Config{
		Capabilities: &core.Capabilities{
			Transactions:        []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly},
			DelayedDelivery:     true,
			NativeDeliveryCount: true,
			PublishSubscribe:    true,
			TimeToBeReceived:    true,
			GroupOrder:          true,
			DelayPrecision:      time.Second,
			MaxLockTime:         12 * time.Hour,
			MaxReceiveBatch:     10,
			MaxMessageBytes:     640 << 10,
			MaxHeaderBytes:      64 << 10,
			CountsReleases:      true,
			ConfirmsSettlement:  true,
			MayDuplicate:        true,
		},
		LockDuration: 30 * time.Second,
	}
}

// LikeAzureServiceBus is as able as Azure Service Bus, standard tier, through
// its Go client: no atomic sends, dead-letter queues, 240 KiB messages with 30 KiB of
// headers, and locks of one minute. All its queues keep groups in order, where the broker's do
// that have sessions.
func LikeAzureServiceBus() Config {
	return Config{
		Capabilities: &core.Capabilities{
			Transactions:        []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly},
			DelayedDelivery:     true,
			NativeDeliveryCount: true,
			PublishSubscribe:    true,
			TimeToBeReceived:    true,
			DeadLetter:          true,
			GroupOrder:          true,
			DelayPrecision:      time.Second,
			MaxMessageBytes:     240 << 10,
			MaxHeaderBytes:      30 << 10,
			ConfirmsSettlement:  true,
			Prefetch:            true,
		},
		LockDuration: time.Minute,
	}
}

// LikeRabbitMQ is as able as RabbitMQ with quorum queues: TransactionReceiveOnly
// alone, delays of at most 8.5 years, 16 MiB messages with 64 KiB of headers,
// settlements that are not confirmed, deliveries without a lock to renew that are
// taken back after 30 minutes (consumer_timeout), and a count that rises with every
// return. What no capability tells it does not
// refuse: a delay together with a time to be received, and names that the broker
// would not take.
func LikeRabbitMQ() Config {
	return Config{
		Capabilities: &core.Capabilities{
			Transactions:        []core.TransactionMode{core.TransactionReceiveOnly},
			DelayedDelivery:     true,
			NativeDeliveryCount: true,
			PublishSubscribe:    true,
			BaseTopics:          true,
			TimeToBeReceived:    true,
			MaxDelay:            (1<<28 - 1) * time.Second,
			DelayPrecision:      2 * time.Second,
			MaxLockTime:         30 * time.Minute,
			MaxMessageBytes:     16 << 20,
			MaxHeaderBytes:      64 << 10,
			MaxHeaderKeyBytes:   255,
			CountsReleases:      true,
			Prefetch:            true,
		},
	}
}

// LikeRabbitMQClassic is LikeRabbitMQ with classic queues, which keep no
// delivery count: each receiver counts alone.
func LikeRabbitMQClassic() Config {
	cfg := LikeRabbitMQ()
	cfg.Capabilities.NativeDeliveryCount = false
	cfg.Capabilities.CountsReleases = false
	return cfg
}

// LikePostgreSQL is as able as queue tables in PostgreSQL: every transaction
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
