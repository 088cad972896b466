package properties

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
)

func TestLimits_Defaults(t *testing.T) {
	t.Parallel()
	s, err := Limits{Tier: Standard}.Queue(Queue{})
	want := Queue{
		LockDuration: time.Minute, MaxDeliveryCount: 10, DefaultMessageTimeToLive: MaxTimeToLive, DuplicateDetectionWindow: 10 * time.Minute,
		Status: StatusActive, AutoDeleteOnIdle: MaxTimeToLive, MaxSizeInMegabytes: 1024,
	}
	if err != nil || s.Queue != want {
		t.Errorf("%+v, %v, want %+v", s.Queue, err, want)
	}
	if s, _ := (Limits{Emulator: true}).Queue(Queue{}); s.DefaultMessageTimeToLive != time.Hour {
		t.Errorf("the emulator has the time to live %v", s.DefaultMessageTimeToLive)
	}
}

func TestLimits_RefuseValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limits     Limits
		properties Queue
		want       amqp10.Symbol // "" if they are accepted
	}{
		"a long lock":            {properties: Queue{LockDuration: 5 * time.Minute}},
		"a lock too long":        {properties: Queue{LockDuration: 5*time.Minute + 1}, want: condition.ArgumentRange},
		"a negative count":       {properties: Queue{MaxDeliveryCount: -1}, want: condition.ArgumentRange},
		"a short time to live":   {properties: Queue{DefaultMessageTimeToLive: time.Millisecond}, want: condition.ArgumentRange},
		"a window too short":     {properties: Queue{DuplicateDetectionWindow: time.Second}, want: condition.ArgumentRange},
		"idle for too short":     {properties: Queue{AutoDeleteOnIdle: time.Minute}, want: condition.ArgumentRange},
		"no size":                {properties: Queue{MaxSizeInMegabytes: -1}, want: condition.ArgumentRange},
		"large, Standard":        {properties: Queue{MaxMessageSizeInKilobytes: 2048}, want: condition.NotAllowed},
		"large, Premium":         {limits: Limits{Tier: Premium}, properties: Queue{MaxMessageSizeInKilobytes: 2048}},
		"forwarded sessions":     {properties: Queue{RequiresSession: true, ForwardTo: "x"}, want: condition.NotAllowed},
		"a status":               {properties: Queue{Status: StatusReceiveDisabled}},
		"another status":         {properties: Queue{Status: "Asleep"}, want: condition.Argument},
		"many deliveries":        {properties: Queue{MaxDeliveryCount: 11}},
		"deliveries, emulator":   {limits: Limits{Emulator: true}, properties: Queue{MaxDeliveryCount: 11}, want: condition.ArgumentRange},
		"time to live, emulator": {limits: Limits{Emulator: true}, properties: Queue{DefaultMessageTimeToLive: 2 * time.Hour}, want: condition.ArgumentRange},
	} {
		got := amqp10.Symbol("")
		if _, err := tt.limits.Queue(tt.properties); err != nil {
			got = condition.Of(err)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestSettings_KeepPropertiesOfTopicsAndSubscriptions(t *testing.T) {
	t.Parallel()
	limits := Limits{Tier: Premium}
	topic := Topic{
		DefaultMessageTimeToLive: time.Hour, RequiresDuplicateDetection: true, DuplicateDetectionWindow: time.Minute, Status: StatusSendDisabled,
		AutoDeleteOnIdle: time.Hour, EnablePartitioning: true, SupportOrdering: true, MaxSizeInMegabytes: 5, MaxMessageSizeInKilobytes: 2048,
		DisableBatchedOperations: true, UserMetadata: "x",
	}
	if s, err := limits.Topic(topic); err != nil || s.Topic() != topic {
		t.Errorf("%+v, %v, want %+v", s.Topic(), err, topic)
	}
	subscription := Subscription{
		LockDuration: time.Second, MaxDeliveryCount: 3, DefaultMessageTimeToLive: time.Hour, DeadLetteringOnMessageExpiration: true,
		DropOnFilterErrors: true, RequiresSession: true, ForwardDeadLetteredMessagesTo: "dead", Status: StatusDisabled,
		AutoDeleteOnIdle: time.Hour, DisableBatchedOperations: true, UserMetadata: "x",
	}
	if s, err := limits.Subscription(subscription); err != nil || s.Subscription() != subscription {
		t.Errorf("%+v, %v, want %+v", s.Subscription(), err, subscription)
	}
	// "AutoDeleteOnIdle on the source entity is automatically set to the maximum value".
	if s, err := limits.Subscription(Subscription{ForwardTo: "q", AutoDeleteOnIdle: time.Hour}); err != nil || s.AutoDeleteOnIdle != MaxTimeToLive {
		t.Errorf("an entity that forwards is deleted after %v (%v)", s.AutoDeleteOnIdle, err)
	}
}

func TestSettings_Sizes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tier Tier
		kb   int64
		want int64
	}{{Standard, 0, 256 << 10}, {Premium, 0, 1 << 20}, {Premium, 2048, 2 << 20}} {
		s := &Settings{Queue: Queue{MaxMessageSizeInKilobytes: tt.kb}}
		if got := (Limits{Tier: tt.tier}).MaxMessageSize(s); got != tt.want {
			t.Errorf("%s with %d KB: %d, want %d", tt.tier, tt.kb, got, tt.want)
		}
	}
	s := &Settings{Queue: Queue{MaxSizeInMegabytes: 3, DefaultMessageTimeToLive: time.Hour}}
	if got := s.MaxSize(); got != 3<<20 {
		t.Errorf("the capacity is %d", got)
	}
	for ttl, want := range map[time.Duration]time.Duration{0: time.Hour, time.Minute: time.Minute, 2 * time.Hour: time.Hour} {
		if got := s.LimitTTL(ttl); got != want {
			t.Errorf("the time to live %v becomes %v, want %v", ttl, got, want)
		}
	}
}
