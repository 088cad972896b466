//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/asb"
)

// WriteInvoice is a command.
type WriteInvoice struct{ OrderID int }

// An endpoint that sends itself a message, and handles it.
func Example() {
	// snippet: first
	ctx, stop := context.WithCancel(context.Background())
	transport, err := asb.New(asb.Config{ConnectionString: os.Getenv("SERVICEBUS_CONNECTION_STRING")})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(context.Background())

	writeInvoice := core.NewMessageType[WriteInvoice]("billing.WriteInvoice") // its name on the wire
	billing, err := core.New("billing", transport, core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	core.Handle(billing, writeInvoice, func(ctx context.Context, _ *core.Message, body WriteInvoice) error {
		fmt.Println("an invoice for order", body.OrderID)
		stop() // Run drains and returns; a service runs until it gets a signal
		return nil
	})
	if err := errors.Join(
		billing.Provision(ctx), // creates billing and error if they are missing
		billing.Send(ctx, "billing", writeInvoice.Of(WriteInvoice{OrderID: 42})),
		billing.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
	// end
}

// A managed identity, without a key.
func ExampleNew_identity() {
	ctx := context.Background()
	// snippet: identity
	credential, err := azidentity.NewManagedIdentityCredential(nil)
	if err != nil {
		log.Fatal(err)
	}
	transport, err := asb.New(asb.Config{
		Namespace:   "shop.servicebus.windows.net",
		Credential:  credential,
		QueuePrefix: "staging.",
		TopicPrefix: "staging.",
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	_ = transport.Close(ctx)
}

// The queues and topics, for people who may create them.
func ExampleBicep() {
	// snippet: bicep
	text, err := asb.Bicep(asb.Config{Namespace: "shop.servicebus.windows.net"}, asb.Entities{
		Queues:        []string{"billing", "error"},
		Subscriptions: map[string][]string{"billing": {"Shop.OrderPlaced"}},
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text[:61])
	// Output: resource namespace 'Microsoft.ServiceBus/namespaces@2022-10-0
}

// Payments of one customer, one after the other.
func ExampleConfig_sessions() {
	ctx := context.Background()
	// snippet: sessions
	transport, err := asb.New(asb.Config{
		Namespace:     "shop.servicebus.windows.net",
		SessionQueues: []string{"ledger"},
	})
	if err != nil {
		log.Fatal(err)
	}
	ledger, err := core.New("ledger", transport, core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	post := func(ctx context.Context, customer string, amount int) error {
		return ledger.Send(ctx, "ledger", postType.Of(amount).With(core.SendOptions{GroupKey: customer}))
	}
	// end
	_ = post
	_ = transport.Close(ctx)
}

// emulatorConfig is for Microsoft's emulator.
func emulatorConfig() (asb.Config, core.Config) {
	// snippet: emulator
	transport := asb.Config{
		ConnectionString: "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
		AdminEndpoint:    "http://localhost:5300",
		CustomizeQueue: func(_ string, p *admin.QueueProperties) {
			p.MaxDeliveryCount, p.DefaultMessageTimeToLive = new(int32(10)), new("PT1H")
		},
		CustomizeSubscription: func(_, _ string, p *admin.SubscriptionProperties) {
			p.MaxDeliveryCount = new(int32(10))
		},
	}
	endpoint := core.Config{Recoverability: core.Recoverability{MaxDeliveries: 9}}
	// end
	return transport, endpoint
}

// Messages of a program without Reprise or NServiceBus.
func ExampleConfig_foreign() {
	ctx := context.Background()
	// snippet: foreign
	transport, err := asb.New(asb.Config{
		Namespace: "shop.servicebus.windows.net",
		MessageType: func(queue string, m *azservicebus.ReceivedMessage) string {
			if m.Subject == nil {
				return ""
			}
			return *m.Subject
		},
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	_ = transport.Close(ctx)
}
