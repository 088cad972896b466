package main

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// profile is a configuration of the in-memory transport with the capabilities of an adapter.
type profile struct {
	name    string
	adapter string // its name in the report
	config  func() inmemory.Config
}

// profiles are compared in this program, because neither the in-memory transport nor an adapter may import the
// other one.
var profiles = []profile{
	{"LikeRabbitMQ", "rabbitmq (quorum queues)", inmemory.LikeRabbitMQ},
	{"LikeRabbitMQClassic", "rabbitmq (classic queues)", inmemory.LikeRabbitMQClassic},
	{"LikeAzureServiceBus", "asb", inmemory.LikeAzureServiceBus},
	{"LikeSQS", "sqs", inmemory.LikeSQS},
	{"LikePostgreSQL", "sqlserver (PostgreSQL)", inmemory.LikePostgreSQL},
}

// compare returns an error that lists the differences of the profiles from the adapters.
func compare(profiles []profile, all []*conformance.Report) error {
	var errs []error
	for _, p := range profiles {
		i := slices.IndexFunc(all, func(r *conformance.Report) bool { return r.Adapter == p.adapter })
		if i < 0 {
			errs = append(errs, fmt.Errorf("there is no report of %s, which inmemory.%s is compared with", p.adapter, p.name))
			continue
		}
		claimed, able := reflect.ValueOf(*p.config().Capabilities), reflect.ValueOf(inMemory(all[i].Capabilities))
		for _, field := range reflect.VisibleFields(claimed.Type()) {
			if field.Anonymous {
				continue // a group; its fields follow
			}
			value, want := claimed.FieldByIndex(field.Index).Interface(), able.FieldByIndex(field.Index).Interface()
			if !reflect.DeepEqual(value, want) {
				errs = append(errs, fmt.Errorf("inmemory.%s has %s %v, but of %s it is %v", p.name, field.Name, value, p.adapter, want))
			}
		}
	}
	return errors.Join(errs...)
}

// inMemory returns the capabilities of an adapter that memory can have.
func inMemory(caps core.Capabilities) core.Capabilities {
	caps.Durable = false
	caps.SubscriptionDelay = 0
	caps.MaxQueueName, caps.MaxTopicName = 0, 0 // which depend on the prefixes of the configuration
	return caps
}
