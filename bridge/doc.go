// Package bridge carries messages from one transport to another: the topics and queues of one
// side are used from the other as if they were its own.
//
//	carrier, err := bridge.New("shop-bridge", bridge.Config{
//		Near: bridge.Side{Transport: postgres, Topics: []string{"shop.OrderPlaced"}},
//		Far:  bridge.Side{Transport: rabbit, Queues: []string{"billing"}},
//	})
//	...
//	err = carrier.Run(ctx) // or core.RunAll with other endpoints and carrier.Endpoints()
//
// What is published on the near side as shop.OrderPlaced is published on the far side too,
// and a message that is sent to the queue billing of the near side reaches the queue billing
// of the far side. Ids, headers, bodies and times stay as they are. A message arrives at least
// once, with the same id each time, so that an inbox on the other side handles it once.
//
// While the other side, or one destination there, cannot be reached, messages wait in the
// queue of the bridge. That costs no attempt, and a few log lines.
package bridge
