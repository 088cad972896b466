package asb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reprise-go/reprise/transport/asb/internal/names"
)

// Entities are queues, and the events to which they subscribe.
type Entities struct {
	// Queues are the queues that endpoints receive from and send to, including error
	// queues.
	Queues []string
	// Subscriptions has, for each queue that subscribes, its events.
	Subscriptions map[string][]string
}

// Bicep returns a Bicep file that creates entities in the namespace of cfg as Provision
// and Subscribe would, for endpoints without the right to do so (Config.NoAdmin). Deploy
// it with
//
//	az deployment group create --resource-group GROUP --template-file FILE
//
// Config.CustomizeQueue and Config.CustomizeSubscription are not called.
func Bicep(cfg Config, e Entities) (string, error) {
	if err := cfg.complete(); err != nil {
		return "", fmt.Errorf("asb: bicep: %w", err)
	}
	b := bicep{cfg: &cfg, symbols: map[string]string{}}
	fmt.Fprintf(&b.text, "resource namespace 'Microsoft.ServiceBus/namespaces@2022-10-01-preview' existing = {\n  name: %s\n}\n", quoted(cfg.namespaceName()))
	queues := slices.Clone(e.Queues)
	for _, queue := range slices.Sorted(maps.Keys(e.Subscriptions)) {
		if !slices.Contains(queues, queue) {
			queues = append(queues, queue)
		}
	}
	for _, queue := range queues {
		address, err := cfg.names().Target(queue)
		if err != nil {
			return "", fmt.Errorf("asb: bicep: %w", err)
		}
		b.queue(address)
	}
	for _, queue := range slices.Sorted(maps.Keys(e.Subscriptions)) {
		address, err := cfg.names().Target(queue)
		if err != nil {
			return "", fmt.Errorf("asb: bicep: %w", err)
		}
		for _, topic := range e.Subscriptions[queue] {
			if err := cfg.names().CheckTopic(topic); err != nil {
				return "", fmt.Errorf("asb: bicep: %w", err)
			}
			b.subscription(address, topic)
		}
	}
	return b.text.String(), nil
}

// bicep writes a file.
type bicep struct {
	cfg     *Config
	text    strings.Builder
	symbols map[string]string // by kind and name
}

// resource writes a resource once, and returns its symbol.
func (b *bicep) resource(kind, parent, name string, properties ...string) string {
	key := kind + " " + parent + " " + strings.ToLower(name)
	if symbol, written := b.symbols[key]; written {
		return symbol
	}
	last := kind[strings.LastIndexByte(kind, '/')+1:]
	symbol := fmt.Sprintf("%s%d", strings.TrimSuffix(last, "s"), len(b.symbols)+1)
	b.symbols[key] = symbol
	fmt.Fprintf(&b.text, "\nresource %s 'Microsoft.ServiceBus/namespaces/%s@2022-10-01-preview' = {\n  parent: %s\n  name: %s\n  properties: {\n", symbol, kind, parent, quoted(name))
	for _, p := range properties {
		b.text.WriteString("    " + p + "\n")
	}
	b.text.WriteString("  }\n}\n")
	return symbol
}

func (b *bicep) queue(address string) string {
	return b.resource("queues", "namespace", names.ARMName(b.cfg.QueuePrefix+address),
		"lockDuration: "+quoted(duration(b.cfg.LockDuration)), fmt.Sprintf("maxDeliveryCount: %d", maxDeliveryCount),
		fmt.Sprintf("requiresSession: %v", b.cfg.names().KeepsGroups(address)))
}

func (b *bicep) subscription(address, event string) {
	topic := b.resource("topics", "namespace", names.ARMName(b.cfg.names().TopicOf(event)))
	queue := b.queue(address)
	b.resource("topics/subscriptions", topic, b.cfg.names().SubscriptionName(address),
		"forwardTo: "+queue+".name", "lockDuration: "+quoted(duration(maxLock)), fmt.Sprintf("maxDeliveryCount: %d", maxDeliveryCount),
		"deadLetteringOnFilterEvaluationExceptions: false")
}

// quoted returns s as a Bicep string.
func quoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "${", `\${`).Replace(s) + "'"
}
