class PracticeJob: pass
