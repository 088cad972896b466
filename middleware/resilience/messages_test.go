package resilience_test

import "github.com/reprise-go/reprise/core"

// The messages of the tests.
var (
	chargeLaterType      = core.NewMessageType[string]("orders.chargeLater")
	chargeType           = core.NewMessageType[string]("orders.charge")
	orderStringType      = core.NewMessageType[string]("order")
	orderType            = core.NewMessageType[[]byte]("order")
	parcelIntType        = core.NewMessageType[int]("parcel")
	parcelType           = core.NewMessageType[string]("parcel")
	paymentPostponedType = core.NewMessageType[string]("PaymentPostponed")
)
