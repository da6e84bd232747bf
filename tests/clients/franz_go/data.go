package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (w *world) codec(name string, codec kgo.CompressionCodec) outcome {
	topic := w.topic("codec-"+name, 1)
	producer := w.client(kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(20*time.Millisecond))
	defer producer.Close()
	for i := 0; i < 20; i++ {
		producer.Produce(w.ctx, &kgo.Record{
			Topic:   topic,
			Key:     []byte(fmt.Sprintf("k%d", i)),
			Value:   []byte(fmt.Sprintf("value-%02d-", i) + strings.Repeat("x", 100)),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte(fmt.Sprint(i))}},
		}, func(_ *kgo.Record, err error) { check(err) })
	}
	check(producer.Flush(w.ctx))
	consumer := w.assigned(topic, kgo.NewOffset().AtStart())
	defer consumer.Close()
	found := w.take(consumer, 20)
	last := found[19]
	return outcome{
		"records":     len(found),
		"key":         string(last.Key),
		"header":      string(last.Headers[0].Value),
		"value_bytes": len(last.Value),
	}
}

func nulls(w *world) outcome {
	topic := w.topic("nulls", 1)
	producer := w.client()
	defer producer.Close()
	check(producer.ProduceSync(w.ctx,
		&kgo.Record{Topic: topic, Value: []byte("v")},
		&kgo.Record{Topic: topic, Key: []byte("k")}).FirstErr())
	consumer := w.assigned(topic, kgo.NewOffset().AtStart())
	defer consumer.Close()
	keys, values := []any{}, []any{}
	for _, record := range w.take(consumer, 2) {
		keys, values = append(keys, text(record.Key)), append(values, text(record.Value))
	}
	return outcome{"keys": keys, "values": values}
}

func text(data []byte) any {
	if data == nil {
		return nil
	}
	return string(data)
}

func seekOffset(w *world) outcome {
	topic := w.topic("seek-offset", 1)
	w.fill(topic, 1, 20)
	consumer := w.assigned(topic, kgo.NewOffset().AtStart())
	defer consumer.Close()
	w.take(consumer, 20)
	consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 13}}})
	offsets := []int64{}
	for _, record := range w.take(consumer, 7) {
		offsets = append(offsets, record.Offset)
	}
	return outcome{"offsets": offsets}
}

func seekTime(w *world) outcome {
	topic := w.topic("seek-time", 1)
	producer := w.client()
	defer producer.Close()
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := 0; i < 10; i++ {
		at := base.Add(time.Duration(i) * time.Second)
		record := &kgo.Record{Topic: topic, Value: []byte("v"), Timestamp: at}
		check(producer.ProduceSync(w.ctx, record).FirstErr())
	}
	asked := kgo.NewOffset().AfterMilli(base.UnixMilli() + 5_500)
	consumer := w.assigned(topic, asked)
	defer consumer.Close()
	return outcome{"offset": w.take(consumer, 1)[0].Offset}
}

func pause(w *world) outcome {
	topic := w.topic("pause", 2)
	w.fill(topic, 2, 5)
	start := kgo.NewOffset().AtStart()
	of := map[string]map[int32]kgo.Offset{topic: {0: start, 1: start}}
	consumer := w.client(kgo.ConsumePartitions(of))
	defer consumer.Close()
	consumer.PauseFetchPartitions(map[string][]int32{topic: {0}})
	first := w.take(consumer, 5)
	consumer.ResumeFetchPartitions(map[string][]int32{topic: {0}})
	return outcome{"first": partitions(first), "then": partitions(w.take(consumer, 5))}
}

// partitions of the records, each once, in the order in which they came.
func partitions(records []*kgo.Record) []int32 {
	found, seen := []int32{}, map[int32]bool{}
	for _, record := range records {
		if !seen[record.Partition] {
			found, seen[record.Partition] = append(found, record.Partition), true
		}
	}
	return found
}

func idempotent(w *world) outcome {
	topic := w.topic("idempotent", 1)
	w.fill(topic, 1, 200)
	consumer := w.assigned(topic, kgo.NewOffset().AtStart())
	defer consumer.Close()
	isInOrder := true
	records := w.take(consumer, 200)
	for i, record := range records {
		isInOrder = isInOrder && string(record.Value) == fmt.Sprint(i) && record.ProducerID >= 0
	}
	return outcome{"records": len(records), "in_order": isInOrder}
}

func transaction(w *world) outcome {
	topic := w.topic("transaction", 1)
	producer := w.client(kgo.TransactionalID(w.name("transaction")))
	defer producer.Close()
	for number, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		check(producer.BeginTransaction())
		for i := 0; i < 5; i++ {
			record := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprintf("%d/%d", number, i))}
			check(producer.ProduceSync(w.ctx, record).FirstErr())
		}
		check(producer.EndTransaction(w.ctx, end))
	}
	start := kgo.NewOffset().AtStart()
	committed := w.assigned(topic, start, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	defer committed.Close()
	all := w.assigned(topic, start, kgo.FetchIsolationLevel(kgo.ReadUncommitted()))
	defer all.Close()
	return outcome{
		"committed":   values(w.take(committed, 10)),
		"uncommitted": len(w.take(all, 15)),
	}
}

// values without the number behind the slash, each once, in the order in which they came.
func values(records []*kgo.Record) []string {
	found := []string{}
	for _, record := range records {
		value, _, _ := strings.Cut(string(record.Value), "/")
		if len(found) == 0 || found[len(found)-1] != value {
			found = append(found, value)
		}
	}
	return found
}

func listOffsets(w *world) outcome {
	topic := w.topic("list-offsets", 1)
	w.fill(topic, 1, 20)
	earliest, _ := must(w.admin.ListStartOffsets(w.ctx, topic)).Lookup(topic, 0)
	latest, _ := must(w.admin.ListEndOffsets(w.ctx, topic)).Lookup(topic, 0)
	return outcome{"earliest": earliest.Offset, "latest": latest.Offset}
}

func deleteRecords(w *world) outcome {
	topic := w.topic("delete-records", 1)
	w.fill(topic, 1, 20)
	before := kadm.Offsets{}
	before.AddOffset(topic, 0, 7, -1)
	deleted, _ := must(w.admin.DeleteRecords(w.ctx, before)).Lookup(topic, 0)
	check(deleted.Err)
	earliest, _ := must(w.admin.ListStartOffsets(w.ctx, topic)).Lookup(topic, 0)
	consumer := w.assigned(topic, kgo.NewOffset().AtStart())
	defer consumer.Close()
	return outcome{
		"low":      deleted.LowWatermark,
		"earliest": earliest.Offset,
		"first":    w.take(consumer, 1)[0].Offset,
	}
}
