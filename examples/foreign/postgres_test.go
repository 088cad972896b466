//go:build darwin || linux

package main

import "testing"

func TestPostgreSQL(t *testing.T) {
	notInShortRuns(t)
	o := options{transport: "postgres", database: database.PasswordURL(database.NewDatabase(t)), customers: []string{"ada"}}
	billing := startBilling(t, o)
	provision(t, o, "shop")

	psycopg.run(t, o.database, "place_in_vain", "1", "ada") // not sent: the next message is another one
	psycopg.run(t, o.database, "place", "2", "ada")
	billing.handled(t, object{"type": "order.placed", "body": `{"id": 2, "customer": "ada"}`})

	reply := psycopg.prints(t, o.database, "request", "3", "ada")
	request := billing.handled(t, object{"type": "order.placed"})
	expect(t, "the reply", reply, object{
		"body": `{"order":3}`, "headers/NServiceBus.EnclosedMessageTypes": "invoice", "headers/NServiceBus.ContentType": "application/json",
		"headers/NServiceBus.CorrelationId": "question-3", "headers/NServiceBus.RelatedTo": request["id"],
		"headers/NServiceBus.ReplyToAddress": `"public"."billing"`,
	})

	psycopg.run(t, o.database, "place_with_values", "4", "bob")
	values := object{
		"headers/number": "7", "headers/yes": "true", "headers/nothing": "", "headers/list": "1;two", "headers/table": "a=1",
	}
	failed := billing.fails(t, values)
	billing.stop()
	expect(t, "in the error queue", psycopg.prints(t, o.database, "return_failed"), values, object{
		"body": failed["body"], "headers/NServiceBus.FailedQ": `"public"."billing"`,
		"headers/NServiceBus.ExceptionInfo.Message": `the customer "bob" is unknown`,
	})

	psycopg.run(t, o.database, "subscribe")
	o.customers = append(o.customers, "bob")
	startBilling(t, o).handled(t, object{"id": failed["id"], "body": failed["body"]})
	expect(t, "the event", psycopg.prints(t, o.database, "take", "shop"), object{
		"body": `{"order":4}`, "headers/NServiceBus.EnclosedMessageTypes": "invoice.written", "headers/NServiceBus.MessageIntent": "Publish",
	})
}
