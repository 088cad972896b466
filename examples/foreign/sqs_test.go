//go:build darwin || linux

package main

import (
	"strings"
	"testing"
)

func TestSQS(t *testing.T) {
	notInShortRuns(t)
	o := options{transport: "sqs", customers: []string{"ada"}}
	billing := startBilling(t, o)
	provision(t, o, "shop")
	provision(t, o, "mailing")
	if p := boto3.start(t, "place", "1", "ada"); p.process.Wait() == nil || !strings.Contains(p.text(), "NoRegionError") {
		t.Errorf("boto3 accepts AWS_REGION: %s", p.text())
	}
	c := boto3.with("AWS_DEFAULT_REGION=eu-central-1")
	c.run(t, "subscribe")
	c.run(t, "place", "1", "ada")
	billing.handled(t, object{"type": "order.placed", "body": ada})
	written := object{"headers/NServiceBus.EnclosedMessageTypes": "invoice.written", "headers/NServiceBus.MessageIntent": "Publish"}
	expect(t, "the event", c.prints(t, "take", "mailing"), written, object{"body": `{"order":1}`})

	reply := c.prints(t, "request", "3", "ada")
	request := billing.handled(t, object{"type": "order.placed"})
	expect(t, "the reply", reply, object{
		"body": `{"order":3}`, "headers/NServiceBus.EnclosedMessageTypes": "invoice", "headers/NServiceBus.ContentType": "application/json",
		"headers/NServiceBus.CorrelationId": "question-3", "headers/NServiceBus.RelatedTo": request["id"], "headers/NServiceBus.ReplyToAddress": "billing",
	})

	expect(t, "the event", c.prints(t, "take", "mailing"), written, object{"body": `{"order":3}`})

	c.run(t, "place_with_values", "2", "bob")
	values := object{"headers/number": "12.50", "headers/text": "Zoë", "headers/bytes": "AP8="}
	failed := billing.fails(t, values)
	billing.stop()
	expect(t, "in the error queue", c.prints(t, "return_failed"), values, object{
		"body": failed["body"], "headers/NServiceBus.FailedQ": "billing",
		"headers/NServiceBus.ExceptionInfo.Message": `the customer "bob" is unknown`,
	})
	o.customers = append(o.customers, "bob")
	billing = startBilling(t, o)
	billing.handled(t, object{"id": failed["id"], "body": failed["body"], "delayedRetries": nil})
	expect(t, "the event", c.prints(t, "take", "mailing"), written, object{"body": `{"order":2}`})
}
